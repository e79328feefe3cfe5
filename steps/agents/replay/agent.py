"""Agent that replays recorded actions without a model, and compares their results with the recording."""

from __future__ import annotations

import time
from collections.abc import Callable

from swe_argo.steps.agents import observation_diff
from swe_argo.steps.agents.formats.solved_unit import replace_surrogates
from swe_argo.steps.agents.journal import Journal
from swe_argo.steps.agents.mini_swe_agent.commands import Commands, submitted_text
from swe_argo.steps.agents.replay.actions import MINI, PerformedAction, performer_of
from swe_argo.steps.agents.task import Task
from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.data import Patch
from swe_argo.steps.contracts.recording import Action, Recording, Replayed
from swe_argo.steps.contracts.trajectory import AgentExtra, Result, ResultExtra, StopReason, ToolCall, Turn
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.protocol import Sandbox


def act(task: Task) -> StopReason:
    """Replay the task's recording. A patch that was the recorded answer becomes the answer again."""
    if task.recording is None:
        raise ConfigError(f"there is no recording of {task.instance.instance_id}", field="agent.trajectories")
    reason = perform(task.recording, task.box, task.spec, task.journal, time.monotonic)
    task.patch = recorded_answer(task.recording)
    return reason


def perform(
    recording: Recording, sandbox: Sandbox, spec: AgentSpec, journal: Journal, clock: Callable[[], float]
) -> StopReason:
    """Replay the actions in order, each recorded in ``journal`` with its result, so that a lost sandbox leaves these.

    If the recording names its scaffold, that scaffold's tools are used, and a differing recorded observation is stored
    beside the new one. Ends at the agent's end action, after the last action with the recording's stop reason, or after
    ``spec.timeout_s``; there is no step limit. A command that fails or exceeds ``spec.command_timeout_s`` gives an
    observation. Raises what Sandbox raises.
    """
    reason = _perform(recording, sandbox, spec, journal, clock)
    if recording.scaffold == MINI:
        Commands(sandbox).tidy()  # as in that agent
    return reason


def _perform(
    recording: Recording, sandbox: Sandbox, spec: AgentSpec, journal: Journal, clock: Callable[[], float]
) -> StopReason:
    if recording.scaffold:
        extra = (journal.agent.extra or AgentExtra()).model_copy(update={"scaffold": recording.scaffold})
        journal.agent = journal.agent.model_copy(update={"extra": extra})
    end = clock() + spec.timeout_s
    again = performer_of(recording.scaffold, sandbox, spec)
    over = recording.stop_reason or StopReason.FINISHED
    for number, action in enumerate(recording.actions, 1):
        left = end - clock()
        if left <= 0:
            return StopReason.TIMEOUT
        done = again(action, min(left, spec.command_timeout_s))
        workdir = sandbox.machine.workdir if recording.scaffold is not None else None
        _note(journal, number, action, done, workdir)
        if done.observed.ends:
            return over if number == len(recording.actions) else StopReason.FINISHED
    return StopReason.TIMEOUT if clock() > end else over


def _note(journal: Journal, number: int, action: Action, done: PerformedAction, workdir: str | None) -> None:
    """Record an action. ``workdir``: the repository's folder; None if observations are not compared."""
    call = ToolCall(tool_call_id=f"call-{number}", function_name=action.tool, arguments=action.arguments)
    observed, then = done.observed, action.observation
    differs = (
        workdir is not None
        and then is not None
        and not any(observation_diff.is_same_observation(then, now, workdir) for now in (observed.text, *done.also))
    )
    extra = ResultExtra(
        exit_code=observed.exit_code,
        timed_out=observed.timed_out,
        seconds=observed.seconds,
        cut=observed.cut,
        recorded=then if differs else None,
    )
    journal.add_agent_turn("", [call], [Result(source_call_id=call.tool_call_id, content=observed.text, extra=extra)])


def recorded_answer(recording: Recording) -> bytes | None:
    """Return the patch that agent oneshot answered; None for other agents, whose result is their changes.

    It is the result whether it applies or not; the outcome of applying it is an observation.
    """
    if recording.scaffold != "oneshot":
        return None
    patch_text = recording.actions[0].arguments.get("patch") if recording.actions else recording.patch
    return Patch.from_text(patch_text if isinstance(patch_text, str) else "").data


def compare_with_recording(recording: Recording, journal: Journal, patch: bytes) -> Replayed:
    """Return the comparison of a replay with its recording: observations of known tools, and ``patch``.

    An action that was not replayed counts as differing.
    """
    turns = [turn for turn in journal.turns if turn.source == "agent"]
    compared_numbers = [number for number, action in enumerate(recording.actions, 1) if action.observation is not None]
    compared_numbers = compared_numbers if recording.scaffold else []
    differing = [
        number for number in compared_numbers if number > len(turns) or _recorded(turns[number - 1]) is not None
    ]
    return Replayed(
        observations=len(compared_numbers),
        differing=differing,
        same_patch=_same_patch(recording, turns, Patch(patch).text),
    )


def _recorded(turn: Turn) -> str | None:
    extra = turn.observation.results[0].extra if turn.observation else None
    return extra.recorded if extra else None


def _same_patch(recording: Recording, turns: list[Turn], patch: str) -> bool | None:
    """Return whether the patch is the recorded one; None without a recorded patch.

    mini-swe-agent records its submission, perhaps a part of the changes; R2E-Gym has U+FFFD for bytes that are no text.
    """
    if recording.patch is None:
        return None
    last = turns[-1].observation if turns else None
    handed_in = submitted_text(last.results[0].content or "") if last and recording.scaffold == MINI else None
    return any(
        observation_diff.is_same_patch(recording.patch, now)
        for now in (patch, replace_surrogates(patch), handed_in)
        if now is not None
    )
