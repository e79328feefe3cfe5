"""Conversion of a conversation in verl's messages to a run's trajectory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from swe_argo.steps.agents.recorder import Recorder
from swe_argo.steps.contracts.trajectory import AgentInfo, Metrics, Result, StopReason, ToolCall, Trajectory, Usage
from swe_argo.workflows.rollouts.task import RolloutTask
from swe_argo.workflows.verl.rollout_units import RolloutUnit


def trajectory_of(
    task: RolloutTask,
    unit: RolloutUnit,
    messages: Iterable[Mapping[str, Any]],
    turns: Sequence[Metrics],
    reason: StopReason,
) -> Trajectory:
    """Return the messages as a trajectory. ``turns``: usage of each model answer; the tokens are not stored."""
    version = task.run.versions.get("swe-argo", "")
    info = AgentInfo(name=task.run.spec.agent.name, version=version, model_name=unit.model)
    recorder = Recorder(info, unit.run_id, task.instance.instance_id, unit.attempt)
    recorder.usage = _usage_of(turns)
    usages = iter(turns)
    results: list[Result] = []
    for message in messages:
        text = _text(message.get("content"))
        if message["role"] == "assistant":
            results = []
            recorder.add_agent_turn(text, list(_calls(message)), metrics=next(usages, Metrics()))
        elif message["role"] == "tool":
            results.append(Result(content=text))
            recorder.add_observations(list(results))
        else:
            recorder.add_message("system" if message["role"] == "system" else "user", text)
    return recorder.trajectory(reason)


def metrics_of(prompt_tokens: int, response_mask: Sequence[int]) -> list[Metrics]:
    """Return the usage of each answer. ``response_mask``: 1 for each token that the model sampled, 0 for all others.

    Between two answers there are always tokens that the model did not write.
    """
    turns, begin = [], None
    # The added 0 ends an answer that is at the end.
    for position, sampled in enumerate([*response_mask, 0]):
        if sampled and begin is None:
            begin = position
        elif not sampled and begin is not None:
            turns.append(Metrics(prompt_tokens=prompt_tokens + begin, completion_tokens=position - begin))
            begin = None
    return turns


def _usage_of(turns: Sequence[Metrics]) -> Usage:
    """Return the usage of all answers together."""
    return Usage(
        calls=len(turns),
        requests=len(turns),
        prompt_tokens=sum(turn.prompt_tokens or 0 for turn in turns),
        completion_tokens=sum(turn.completion_tokens or 0 for turn in turns),
    )


def _calls(message: Mapping[str, Any]) -> Iterable[ToolCall]:
    """Yield a message's tool calls; arguments that are not a JSON object are under the name ""."""
    for number, call in enumerate(message.get("tool_calls") or []):
        value = call["function"]["arguments"]
        if isinstance(value, str):
            with suppress(ValueError):
                value = json.loads(value)
        arguments = value if isinstance(value, dict) else {"": str(value)}
        name = call["function"]["name"]
        yield ToolCall(tool_call_id=call.get("id") or str(number), function_name=name, arguments=arguments)


def _text(content: Any) -> str:
    if isinstance(content, list):  # parts of a message, which may include images
        return "".join(str(part.get("text", "")) for part in content)
    return str(content or "")
