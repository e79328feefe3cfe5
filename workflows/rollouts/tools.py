"""The tools ``bash`` and ``submit_solution``: their definitions and their execution.

The definitions are in ``templates/verl/tools.yaml``, in verl's format.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import yaml

from swe_argo.steps import TEMPLATES
from swe_argo.steps.agents.tools.toolsets import NOT_TEXT, is_sendable
from swe_argo.workflows.rollouts.rollout import LiveRollout

_FILE: Final = TEMPLATES / "verl" / "tools.yaml"


async def run_bash(rollout: LiveRollout, parameters: Mapping[str, Any]) -> str:
    """Run the command; return its exit code and output. Raises StepError if the sandbox was lost."""
    command = parameters.get("command")
    if not isinstance(command, str) or not command.strip():
        return "bash needs a command: a text in the argument 'command'."
    if not is_sendable("command", command):
        return f"bash did not run this: the argument 'command' {NOT_TEXT}."
    return await rollout.run_command(command)


async def submit_solution(rollout: LiveRollout, parameters: Mapping[str, Any]) -> str:
    """Submit the solution; return whether and why (not) it was accepted, nothing about grading.

    Raises StepError if the sandbox was lost.
    """
    patch = parameters.get("patch") or ""
    if not isinstance(patch, str):
        return "submit_solution takes a text in the argument 'patch', or none."
    return await rollout.submit(patch)


TOOLS: Final[Mapping[str, Callable[[LiveRollout, Mapping[str, Any]], Awaitable[str]]]] = {
    "bash": run_bash,
    "submit_solution": submit_solution,
}


async def call_tool(rollout: LiveRollout, name: str, arguments: str) -> str:
    """Execute a tool call as the model wrote it; return the text for the model, which names mistakes in the call.

    Raises StepError if the sandbox was lost.
    """
    tool = TOOLS.get(name)
    if tool is None:
        return f"There is no tool {name!r}; there are {' and '.join(TOOLS)}."
    try:
        parameters = json.loads(arguments or "{}")
    except ValueError as error:
        return f"The arguments of {name} are no JSON: {error}."
    if not isinstance(parameters, dict):
        return f"The arguments of {name} are to be a JSON object."
    return await tool(rollout, parameters)


def tool_definitions() -> list[dict[str, Any]]:
    """Return the tools in the format of chat completion requests."""
    return [entry["tool_schema"] for entry in yaml.safe_load(_FILE.read_text())["tools"]]
