from __future__ import annotations

from swe_argo.steps.training import verl_rows
from swe_argo.workflows.rollouts.tools import TOOLS, tool_definitions


def test_tool_definitions_match_tools() -> None:
    names = [tool["function"]["name"] for tool in tool_definitions()]
    assert names == list(TOOLS) == list(verl_rows.TOOLS)
