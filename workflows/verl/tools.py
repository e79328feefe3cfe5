"""The tools ``bash`` and ``submit_solution`` as verl has tools: they act on the rollout that calls them.

verl makes and releases a tool around every single call, so nothing of a rollout is kept in one. What the model is told
of them stands in ``templates/verl/tools.yaml``.
"""

from __future__ import annotations

from typing import Any

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import ToolResponse

from steps.agents.tools.toolsets import NOT_TEXT, is_sendable
from workflows.verl.rollout import current_rollout

ToolReturn = tuple[ToolResponse, float, dict[str, Any]]
"""What the model is shown; a reward of the call and figures of it, of which there are none."""


class BashTool(BaseTool):  # type: ignore[misc]
    """Runs a command in the rollout's sandbox."""

    async def execute(self, _id: str, parameters: dict[str, Any], **_: Any) -> ToolReturn:
        """What the command printed, below its exit code. Raises StepError where the sandbox was lost."""
        command = parameters.get("command")
        if not isinstance(command, str) or not command.strip():
            return ToolResponse(text="bash needs a command: a text in the argument 'command'."), 0.0, {}
        if not is_sendable("command", command):
            return ToolResponse(text=f"bash did not run this: the argument 'command' {NOT_TEXT}."), 0.0, {}
        return ToolResponse(text=await current_rollout().run_command(command)), 0.0, {}


class SubmitSolutionTool(BaseTool):  # type: ignore[misc]
    """Takes the solution."""

    async def execute(self, _id: str, parameters: dict[str, Any], **_: Any) -> ToolReturn:
        """Whether it was taken, and why not. Nothing of its grading: that is done when the conversation is over."""
        patch = parameters.get("patch") or ""
        if not isinstance(patch, str):
            return ToolResponse(text="submit_solution takes a text in the argument 'patch', or none."), 0.0, {}
        return ToolResponse(text=await current_rollout().submit(patch)), 0.0, {}
