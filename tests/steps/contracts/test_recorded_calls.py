"""Answered calls as turns."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from swe_argo.steps.contracts.recorded_calls import RecordedCall, RecordedToolCall, read_lines
from swe_argo.steps.contracts.trajectory import Metrics, Usage
from swe_argo.steps.contracts.unit_progress import last_action

CALL = RecordedCall(
    try_name="a",
    attempt=1,
    request="0" * 64,
    text="I look.",
    calls=[
        RecordedToolCall(id="c1", name="bash", arguments='{"command": "ls"}'),
        RecordedToolCall(id="c2", name="bash", arguments='{"command": "ls'),
    ],
    metrics=Metrics(prompt_tokens=3, completion_token_ids=[1, 2]),
    usage=Usage(),
    spent=Usage(),
    lost_s=0.0,
    seconds=1.0,
    at=datetime(2026, 11, 22, 10, tzinfo=UTC),
)


def test_recorded_call_becomes_turn() -> None:
    turn = CALL.as_turn(2, ["a.py", None, "and this"])
    assert turn.tool_calls is not None
    assert [call.arguments for call in turn.tool_calls] == [{"command": "ls"}, {"": '{"command": "ls'}]
    assert turn.observation is not None
    results = [(result.source_call_id, result.content) for result in turn.observation.results]
    assert results == [("c1", "a.py"), ("c2", None), (None, "and this")]
    assert turn.metrics == Metrics(prompt_tokens=3)
    assert last_action(turn) == 'bash: {"command": "ls'
    assert CALL.as_turn(observations=["a.py"]).observation is not None
    assert last_action(CALL.model_copy(update={"calls": []}).as_turn()) == "I look."


def test_recorded_call_time_has_zone() -> None:
    assert read_lines(CALL.to_line()) == [CALL]
    with pytest.raises(ValidationError):
        read_lines(CALL.to_line().replace(b"10:00:00Z", b"10:00:00"))
