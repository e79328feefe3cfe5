"""Mapping of an agent program's end to a stop reason or a failure."""

from __future__ import annotations

from swe_argo.steps.agents.gateway.events import Ended, GatewayLimit
from swe_argo.steps.agents.program.exchange import Exchange
from swe_argo.steps.agents.program.unrunnable import explain_unrunnable
from swe_argo.steps.agents.task import Task
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.recipe import Recipe
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.errors import ConfigError, InfraError, one_line

SIGNAL_BASE = 128
"""A shell's exit code for a program that a signal ended is this plus the signal's number."""
LIMIT_REASONS: dict[GatewayLimit, tuple[StopReason, str]] = {
    "output": (StopReason.OUTPUT_FLOOD, "output limit exceeded"),
    "home": (StopReason.HOME_FLOOD, "HOME size limit exceeded"),
    "waiting": (StopReason.WAITING, "no activity: the agent may be waiting for a terminal or a person"),
}


def reason_of(ended: Ended, exchange: Exchange, recipe: Recipe, task: Task) -> StopReason:
    """Return the stop reason, and add a note about it to the recorder.

    Raises InfraError if the gateway did not start, ConfigError if the agent's files cannot run in this image.
    """
    reason, note = _reason(ended, exchange, recipe, task)
    if note:
        task.recorder.note = "; ".join(filter(None, (task.recorder.note, note)))
    return reason


def _reason(ended: Ended, exchange: Exchange, recipe: Recipe, task: Task) -> tuple[StopReason, str]:
    """Return the stop reason and a note about it. The first cause that applies counts. Raises as ``reason_of``."""
    # The endpoint refused from the start, and the agent repeated the call until we stopped it.
    if exchange.early_end is not None and exchange.reason is StopReason.ERROR_LOOP:
        return exchange.early_end, exchange.last_detail
    if exchange.reason is not None:
        return exchange.reason, ""
    if ended.failure:
        raise InfraError(FailureClass.EXEC, f"the gateway for {recipe.name} did not start: {ended.failure}")
    if ended.exceeded_limit is not None:
        return LIMIT_REASONS[ended.exceeded_limit]
    if ended.exit_code is None:
        return _without_exit_code(ended)
    code = ended.exit_code
    if (
        not exchange.has_called_model
        and code not in recipe.exits
        and (cause := explain_unrunnable(code, task.recorder.printed[-2000:]))
    ):
        raise _unrunnable(recipe, task, code, cause)
    reason = exchange.early_end or _reason_of_code(code, exchange, recipe)
    detail = exchange.last_detail if reason is exchange.last_stop_reason else ""
    return reason, "; ".join(filter(None, (detail, f"exit code {code}" if code else "")))


def _without_exit_code(ended: Ended) -> tuple[StopReason, str]:
    """Return the stop reason and a note if the gateway did not report the agent's exit code."""
    if ended.flooded:
        return StopReason.OUTPUT_FLOOD, ""
    if ended.forged:
        return StopReason.SANDBOX_BROKEN, f"output that the model gateway cannot have written: {ended.forged}"
    return StopReason.AGENT_KILLED, "the model gateway was killed"


def _reason_of_code(code: int, exchange: Exchange, recipe: Recipe) -> StopReason:
    """Return the stop reason of an exit code; the recipe's own meanings come first."""
    if code in recipe.exits:
        return recipe.exits[code]
    if not exchange.has_called_model:
        return StopReason.NO_CALLS
    if code == 0:
        return StopReason.FINISHED
    return StopReason.AGENT_KILLED if code > SIGNAL_BASE else exchange.last_stop_reason or StopReason.AGENT_CRASHED


def _unrunnable(recipe: Recipe, task: Task, code: int, cause: str) -> ConfigError:
    """Return the error for a program that cannot start in the image. ``cause``: a clause about the reason."""
    output = one_line(task.recorder.printed[-600:], 300) or f"exit code {code}"
    needs = "" if recipe.libc == "any" else f" (its files need {recipe.libc})"
    return ConfigError(
        f"{recipe.name} cannot run in {task.instance.image}{needs}: {cause}: {output}", field="agent.name"
    )
