"""Agent that replays recorded actions without a model, and compares their results with the recording."""

from __future__ import annotations

import time
from collections.abc import Callable

from swe_argo.steps.agents import observation_diff
from swe_argo.steps.agents.formats.solved_unit import replace_surrogates
from swe_argo.steps.agents.mini_swe_agent.commands import Commands, submitted_text
from swe_argo.steps.agents.recorder import Recorder
from swe_argo.steps.agents.replay.actions import MINI, PerformedAction, executor_for
from swe_argo.steps.agents.task import Task
from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.data import Patch
from swe_argo.steps.contracts.recording import Action, Recording, Replayed
from swe_argo.steps.contracts.trajectory import AgentExtra, Result, ResultExtra, StopReason, ToolCall, Turn
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.protocol import Sandbox


def act(task: Task) -> StopReason:
    """Replay the task's recording. A patch that was the recorded answer becomes the answer again.

    Raises ConfigError if the instance has no recording, and the errors of ``perform``.
    """
    if task.recording is None:
        raise ConfigError(f"{task.instance.instance_id} has no recording", field="agent.trajectories")
    reason = perform(task.recording, task.box, task.spec, task.recorder, time.monotonic)
    task.patch = recorded_answer(task.recording)
    return reason


def perform(
    recording: Recording, sandbox: Sandbox, spec: AgentSpec, recorder: Recorder, clock: Callable[[], float]
) -> StopReason:
    """Replay the actions in order, and record each with its result at once, as the sandbox may be lost.

    If the recording names its scaffold, that scaffold's tools are used, and a differing recorded observation is stored
    beside the new one. Ends at the agent's end action, after the last action with the recording's stop reason, or after
    ``spec.timeout_s``; there is no step limit. A command that fails or exceeds ``spec.command_timeout_s`` gives an
    observation. Raises what Sandbox raises.
    """
    reason = _perform(recording, sandbox, spec, recorder, clock)
    if recording.scaffold == MINI:
        Commands(sandbox).remove_patch_file()  # as in that agent
    return reason


def _perform(
    recording: Recording, sandbox: Sandbox, spec: AgentSpec, recorder: Recorder, clock: Callable[[], float]
) -> StopReason:
    """Replay the actions, see ``perform``."""
    if recording.scaffold:
        extra = (recorder.agent.extra or AgentExtra()).model_copy(update={"scaffold": recording.scaffold})
        recorder.agent = recorder.agent.model_copy(update={"extra": extra})
    end = clock() + spec.timeout_s
    execute = executor_for(recording.scaffold, sandbox, spec)
    final_reason = recording.stop_reason or StopReason.FINISHED
    for number, action in enumerate(recording.actions, 1):
        remaining_s = end - clock()
        if remaining_s <= 0:
            return StopReason.TIMEOUT
        result = execute(action, min(remaining_s, spec.command_timeout_s))
        workdir = sandbox.machine.workdir if recording.scaffold is not None else None
        _record_action(recorder, number, action, result, workdir)
        if result.observed.ends:
            # An end before the last action is not the recorded one.
            return final_reason if number == len(recording.actions) else StopReason.FINISHED
    return StopReason.TIMEOUT if clock() > end else final_reason


def _record_action(
    recorder: Recorder, number: int, action: Action, performed: PerformedAction, workdir: str | None
) -> None:
    """Record an action. ``workdir``: the repository's folder; None if observations are not compared."""
    call = ToolCall(tool_call_id=f"call-{number}", function_name=action.tool, arguments=action.arguments)
    observed, recorded = performed.observed, action.observation
    differs = (
        workdir is not None
        and recorded is not None
        and not any(
            observation_diff.is_same_observation(recorded, text, workdir)
            for text in (observed.text, *performed.other_forms)
        )
    )
    extra = ResultExtra(
        exit_code=observed.exit_code,
        timed_out=observed.timed_out,
        seconds=observed.seconds,
        cut=observed.cut,
        recorded=recorded if differs else None,
    )
    recorder.add_agent_turn("", [call], [Result(source_call_id=call.tool_call_id, content=observed.text, extra=extra)])


def recorded_answer(recording: Recording) -> bytes | None:
    """Return the patch that agent oneshot answered; None for other agents, whose result is their changes.

    It is the result whether it applies or not; the outcome of applying it is an observation.
    """
    if recording.scaffold != "oneshot":
        return None
    patch_text = recording.actions[0].arguments.get("patch") if recording.actions else recording.patch
    return Patch.from_text(patch_text if isinstance(patch_text, str) else "").data


def compare_with_recording(recording: Recording, recorder: Recorder, patch: bytes) -> Replayed:
    """Return the comparison of a replay with its recording: observations of known tools, and ``patch``.

    An action that was not replayed counts as differing.
    """
    turns = [turn for turn in recorder.turns if turn.source == "agent"]
    compared_numbers = [number for number, action in enumerate(recording.actions, 1) if action.observation is not None]
    compared_numbers = compared_numbers if recording.scaffold else []
    differing = [
        number
        for number in compared_numbers
        if number > len(turns) or _differing_observation(turns[number - 1]) is not None
    ]
    return Replayed(
        observations=len(compared_numbers),
        differing=differing,
        same_patch=_same_patch(recording, turns, Patch(patch).text),
    )


def _differing_observation(turn: Turn) -> str | None:
    """Return the recorded observation of a replayed turn if the new one differs, else None."""
    extra = turn.observation.results[0].extra if turn.observation else None
    return extra.recorded if extra else None


def _same_patch(recording: Recording, turns: list[Turn], patch: str) -> bool | None:
    """Return whether the patch is the recorded one; None without a recorded patch.

    mini-swe-agent records its submission, perhaps a part of the changes; R2E-Gym replaces bytes that are not UTF-8.
    """
    if recording.patch is None:
        return None
    last = turns[-1].observation if turns else None
    submission = submitted_text(last.results[0].content or "") if last and recording.scaffold == MINI else None
    return any(
        observation_diff.is_same_patch(recording.patch, candidate)
        for candidate in (patch, replace_surrogates(patch), submission)
        if candidate is not None
    )
