"""The tools of a rollout as verl's tools: they act on the rollout that calls them.

verl creates and releases a tool around every call, so a tool has no state of a rollout.
"""

from __future__ import annotations

from typing import Any

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import ToolResponse

from swe_argo.workflows.rollouts.rollout import current_rollout
from swe_argo.workflows.rollouts.tools import run_bash, submit_solution

ToolReturn = tuple[ToolResponse, float, dict[str, Any]]
"""Text for the model; reward and metrics of the call, which are always empty."""


class BashTool(BaseTool):  # type: ignore[misc]
    """Runs a command in the rollout's sandbox."""

    async def execute(self, _id: str, parameters: dict[str, Any], **_: Any) -> ToolReturn:
        """Run the command; return its exit code and output. Raises StepError if the sandbox was lost."""
        return ToolResponse(text=await run_bash(current_rollout(), parameters)), 0.0, {}


class SubmitSolutionTool(BaseTool):  # type: ignore[misc]
    """Submits the solution."""

    async def execute(self, _id: str, parameters: dict[str, Any], **_: Any) -> ToolReturn:
        """Submit the solution; return whether and why (not) it was accepted. Grading follows after the conversation."""
        return ToolResponse(text=await submit_solution(current_rollout(), parameters)), 0.0, {}
