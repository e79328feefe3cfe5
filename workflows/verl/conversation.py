"""A conversation in verl's messages -> the trajectory that runs keep."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from steps.agents.journal import Journal
from steps.contracts.trajectory import AgentInfo, Result, StopReason, ToolCall, Trajectory
from workflows.verl.rollout_task import RolloutTask


def trajectory_of(
    task: RolloutTask, run_id: str, attempt: int, messages: Iterable[Mapping[str, Any]], reason: StopReason
) -> Trajectory:
    """The messages as turns; tokens are verl's own affair, and not kept."""
    version = task.run.versions.get("swe-argo", "")
    info = AgentInfo(name=task.run.spec.agent.name, version=version, model_name=task.run.model)
    journal = Journal(info, run_id, task.instance.instance_id, attempt)
    results: list[Result] = []
    for message in messages:
        text = _text(message.get("content"))
        if message["role"] == "assistant":
            results = []
            journal.add_agent_turn(text, list(_calls(message)))
        elif message["role"] == "tool":
            results.append(Result(content=text))
            journal.add_observations(list(results))
        else:
            journal.add_message("system" if message["role"] == "system" else "user", text)
    return journal.trajectory(reason)


def _calls(message: Mapping[str, Any]) -> Iterable[ToolCall]:
    for number, call in enumerate(message.get("tool_calls") or []):
        given = call["function"]["arguments"]
        if isinstance(given, str):
            with suppress(ValueError):
                given = json.loads(given)
        arguments = given if isinstance(given, dict) else {"": str(given)}
        name = call["function"]["name"]
        yield ToolCall(tool_call_id=call.get("id") or str(number), function_name=name, arguments=arguments)


def _text(content: Any) -> str:
    if isinstance(content, list):  # parts of a message that may hold images, too
        return "".join(str(part.get("text", "")) for part in content)
    return str(content or "")
