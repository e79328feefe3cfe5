"""Mapping of an agent program's end to a stop reason or a failure."""

from __future__ import annotations

from swe_argo.steps.agents.gate.events import Ended, Over
from swe_argo.steps.agents.program.exchange import Exchange
from swe_argo.steps.agents.program.unrunnable import explain_unrunnable
from swe_argo.steps.agents.task import Task
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.recipe import Recipe
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.errors import ConfigError, InfraError, one_line

SIGNALS = 128
OVER: dict[Over, tuple[StopReason, str]] = {
    "output": (StopReason.OUTPUT_FLOOD, "it printed more than it may"),
    "home": (StopReason.HOME_FLOOD, "it wrote more into its HOME than it may"),
    "waiting": (StopReason.WAITING, "it did nothing any more: it waits for a terminal or a person"),
}


def reason_of(ended: Ended, exchange: Exchange, recipe: Recipe, task: Task) -> StopReason:
    """Return the stop reason, and add a note about it to the journal.

    Raises InfraError if the gateway did not start, ConfigError if the agent's files cannot run in this image.
    """
    reason, note = _reason(ended, exchange, recipe, task)
    if note:
        task.journal.note = "; ".join(filter(None, (task.journal.note, note)))
    return reason


def _reason(ended: Ended, exchange: Exchange, recipe: Recipe, task: Task) -> tuple[StopReason, str]:
    if exchange.early_end is not None and exchange.reason is StopReason.ERROR_LOOP:
        return exchange.early_end, exchange.last_detail
    if exchange.reason is not None:
        return exchange.reason, ""
    if ended.failure:
        raise InfraError(FailureClass.EXEC, f"the gate for {recipe.name} did not start: {ended.failure}")
    if ended.over is not None:
        return OVER[ended.over]
    if ended.exit_code is None:
        return _without_exit_code(ended)
    code = ended.exit_code
    if (
        not exchange.asked
        and code not in recipe.exits
        and (why := explain_unrunnable(code, task.journal.printed[-2000:]))
    ):
        raise _unrunnable(recipe, task, code, why)
    reason = exchange.early_end or _meaning(code, exchange, recipe)
    told = exchange.last_detail if reason is exchange.last_ended else ""
    return reason, "; ".join(filter(None, (told, f"exit code {code}" if code else "")))


def _without_exit_code(ended: Ended) -> tuple[StopReason, str]:
    if ended.flooded:
        return StopReason.OUTPUT_FLOOD, ""
    if ended.forged:
        return StopReason.SANDBOX_BROKEN, f"something else than the gate has told {ended.forged}"
    return StopReason.AGENT_KILLED, "its gate was killed"


def _meaning(code: int, exchange: Exchange, recipe: Recipe) -> StopReason:
    if code in recipe.exits:
        return recipe.exits[code]
    if not exchange.asked:
        return StopReason.NO_CALLS
    if code == 0:
        return StopReason.FINISHED
    return StopReason.AGENT_KILLED if code > SIGNALS else exchange.last_ended or StopReason.AGENT_CRASHED


def _unrunnable(recipe: Recipe, task: Task, code: int, why: str) -> ConfigError:
    said = one_line(task.journal.printed[-600:], 300) or f"exit code {code}"
    needs = "" if recipe.libc == "any" else f" (its files need {recipe.libc})"
    return ConfigError(f"{recipe.name} cannot run in {task.instance.image}{needs}: {why}: {said}", field="agent.name")
