"""The warning that most answers of a model held nothing its agent can use."""

from __future__ import annotations

import json
from typing import Any

import pytest

from swe_argo.steps.reports.figures.caveats import find_caveats
from swe_argo.steps.reports.page.unit_pages import count_answers
from swe_argo.steps.reports.unit.conversation import read_conversation
from tests.steps.reports.views import run_file, view

CALL = [{"tool_call_id": "c", "function_name": "bash", "arguments": {"command": "ls"}}]
PROSE = "I would rather not."
SPOKEN: dict[str, Any] = {"message": PROSE}
BLANK: dict[str, Any] = {"message": ""}
MALFORMED = {**SPOKEN, "extra": {"malformed": "no_call"}}
NO_CALL = f'contained no valid tool call; one began: "{PROSE}"'
NOTHING = "were empty; the server sent no text"

SCAFFOLDS: dict[str, tuple[str, bool | None, bool, dict[str, Any], dict[str, Any], str]] = {
    "r2egym": ("r2egym", True, True, {"tool_calls": CALL}, MALFORMED, NO_CALL),
    "r2egym in text": ("r2egym", False, True, {"tool_calls": CALL}, MALFORMED, NO_CALL),
    "openhands": ("openhands", True, True, {"tool_calls": CALL}, BLANK | {"extra": {"malformed": "empty"}}, NOTHING),
    "sweagent": ("sweagent", True, True, {"tool_calls": CALL}, MALFORMED | {"tool_calls": CALL}, NO_CALL),
    "mini-swe-agent": ("mini-swe-agent", True, True, {"tool_calls": CALL}, MALFORMED, NO_CALL),
    "oneshot": (
        "oneshot",
        None,
        False,
        {"tool_calls": CALL},
        MALFORMED,
        NO_CALL.replace("valid tool call", "patch"),
    ),
    "claude-code, with tools": ("claude-code", None, True, {"tool_calls": CALL}, SPOKEN, NO_CALL),
    "aider, without tools": ("aider", None, False, SPOKEN, BLANK, NOTHING),
}
"""Agent, function calling, whether tools are offered, a useful answer, a useless one, and the words for the latter."""
CASES = {
    "one useful answer and 49 useless": ([True] + [False] * 49, True),
    "five useful answers and five useless": ([True] * 5 + [False] * 5, False),
    "nine useless answers": ([False] * 9, False),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("scaffold", SCAFFOLDS)
def test_caveats_warn_of_useless_replies(scaffold: str, case: str) -> None:
    agent, fn_calling, offers_tools, useful, useless, words = SCAFFOLDS[scaffold]
    answers, warns = CASES[case]
    spec = {"agent": {"name": agent, "model": "openai/m"}}
    units = [str(place) for place in range(0, len(answers), 5)]
    run = view(run_file(spec=spec, fn_calling=fn_calling), dict.fromkeys(units, "resolved"))
    for unit in run.units:
        some = answers[int(unit.instance_id) : int(unit.instance_id) + 5]
        steps = [{"source": "agent", "metrics": {}, **(useful if is_useful else useless)} for is_useful in some]
        tools = [{"type": "function"}] if offers_tools else None
        data = json.dumps({"agent": {"name": agent, "tool_definitions": tools}, "steps": steps}).encode()
        count_answers(unit, read_conversation(data))
    caveats = [caveat for caveat in find_caveats(run) if "of the model's" in caveat]
    assert bool(caveats) is warns
    if warns:
        assert caveats[0].startswith(f"49 of the model's 50 answers {words}. ")
        advises = "--use-fn-calling" in caveats[0]
        assert advises is (fn_calling is not None)


def test_caveats_need_a_model() -> None:
    run = view(run_file(spec={"agent": {"name": "replay"}}), {"a": "resolved"})
    steps = [{"source": "agent", "message": ""}] * 20
    count_answers(run.units[0], read_conversation(json.dumps({"steps": steps}).encode()))
    assert (run.units[0].turns, run.units[0].model_answers) == (20, 0)
