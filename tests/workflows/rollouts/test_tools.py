from __future__ import annotations

from swe_argo.steps.training import verl_rows
from swe_argo.workflows.rollouts.tools import TOOLS, tool_definitions


def test_a_model_is_told_of_the_tools_that_there_are() -> None:
    told = [each["function"]["name"] for each in tool_definitions()]
    assert told == list(TOOLS) == list(verl_rows.TOOLS)
