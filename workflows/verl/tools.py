"""The tools of a rollout as verl has tools: they act on the rollout that calls them.

verl makes and releases a tool around every single call, so nothing of a rollout is kept in one.
"""

from __future__ import annotations

from typing import Any

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import ToolResponse

from swe_argo.workflows.rollouts.rollout import current_rollout
from swe_argo.workflows.rollouts.tools import run_bash, submit_solution

ToolReturn = tuple[ToolResponse, float, dict[str, Any]]
"""What the model is shown; a reward of the call and figures of it, of which there are none."""


class BashTool(BaseTool):  # type: ignore[misc]
    """Runs a command in the rollout's sandbox."""

    async def execute(self, _id: str, parameters: dict[str, Any], **_: Any) -> ToolReturn:
        """What the command printed, below its exit code. Raises StepError where the sandbox was lost."""
        return ToolResponse(text=await run_bash(current_rollout(), parameters)), 0.0, {}


class SubmitSolutionTool(BaseTool):  # type: ignore[misc]
    """Takes the solution."""

    async def execute(self, _id: str, parameters: dict[str, Any], **_: Any) -> ToolReturn:
        """Whether it was taken, and why not. Nothing of its grading: that is done when the conversation is over."""
        return ToolResponse(text=await submit_solution(current_rollout(), parameters)), 0.0, {}
