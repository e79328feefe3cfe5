"""Answered calls as turns."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from swe_argo.steps.contracts.kept_calls import KeptCall, KeptToolCall, read_lines
from swe_argo.steps.contracts.trajectory import Metrics, Usage
from swe_argo.steps.contracts.unit_progress import last_action

CALL = KeptCall(
    try_name="a",
    attempt=1,
    request="0" * 64,
    text="I look.",
    calls=[
        KeptToolCall(id="c1", name="bash", arguments='{"command": "ls"}'),
        KeptToolCall(id="c2", name="bash", arguments='{"command": "ls'),
    ],
    metrics=Metrics(prompt_tokens=3, completion_token_ids=[1, 2]),
    usage=Usage(),
    spent=Usage(),
    lost_s=0.0,
    seconds=1.0,
    at=datetime(2026, 11, 22, 10, tzinfo=UTC),
)


def test_an_answer_is_a_turn_with_what_was_shown_of_its_calls() -> None:
    turn = CALL.as_turn(2, ["a.py", None, "and this"])
    assert turn.tool_calls is not None
    assert [call.arguments for call in turn.tool_calls] == [{"command": "ls"}, {"": '{"command": "ls'}]
    assert turn.observation is not None
    seen = [(result.source_call_id, result.content) for result in turn.observation.results]
    assert seen == [("c1", "a.py"), ("c2", None), (None, "and this")]
    assert turn.metrics == Metrics(prompt_tokens=3)
    assert last_action(turn) == 'bash: {"command": "ls'
    assert CALL.as_turn(shown=["a.py"]).observation is not None
    assert last_action(CALL.model_copy(update={"calls": []}).as_turn()) == "I look."


def test_when_an_answer_came_has_a_zone() -> None:
    assert read_lines(CALL.to_line()) == [CALL]
    with pytest.raises(ValidationError):
        read_lines(CALL.to_line().replace(b"10:00:00Z", b"10:00:00"))
