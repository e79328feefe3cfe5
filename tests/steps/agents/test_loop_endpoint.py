"""Conversations in which the endpoint is odd: each ends as it should, with its changes and every token counted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.trajectory import StopReason
from tests.model_server import Fault
from tests.model_server.answers import DRIP, NO_CHOICES, SERVER_ERROR, error, rate_limited
from tests.steps.agents.machine import Box
from tests.steps.agents.test_loop import TOUCH, Work, finish, script_for

WORDINGS = Path(__file__).parents[1] / "models" / "wordings.jsonl"
ENDPOINTS = ("Moonshot", "xAI", "Zhipu", "DashScope", "TGI", "TensorRT-LLM", "LMDeploy")
OVERFLOWS = [
    wording
    for wording in map(json.loads, WORDINGS.read_text("utf-8").splitlines())
    if wording["means"] == "overflow" and wording["who"].startswith(ENDPOINTS)
]
LATE = error(400, "Invalid 'messages[4].content'", "invalid_value", "invalid_request_error")


@pytest.fixture
def work(box: Box, tmp_path: Path) -> Work:
    return Work(box, tmp_path / "try" / "trajectory.json")


@pytest.mark.parametrize("wording", OVERFLOWS, ids=lambda wording: wording["who"])
def test_context_overflow_keeps_changes(work: Work, wording: dict[str, Any]) -> None:
    attempt = work(script_for(TOUCH, Fault(wording["status"], wording["body"])), llm={"num_retries": 3})
    assert attempt.reason is StopReason.CONTEXT_OVERFLOW
    assert (work.box.testbed / "done-it").exists()


@pytest.mark.parametrize("fault", [LATE, error(400, "top_p is not supported")])
def test_late_refusal_keeps_changes(work: Work, fault: Fault) -> None:
    attempt = work(script_for(TOUCH, fault), llm={"num_retries": 3})
    assert attempt.reason is StopReason.REQUEST_REFUSED
    assert (work.box.testbed / "done-it").exists()
    assert attempt.server.counts.requests == 4, "the same once more, after plan's small request"
    if fault is LATE:
        assert attempt.recorder.note == "Invalid 'messages[4].content'"


def test_loop_retries_odd_responses(work: Work) -> None:
    large = replace(rate_limited(), status=413)
    odd = [Fault(200, {"choices": None}), NO_CHOICES, DRIP, LATE, large, SERVER_ERROR]
    script = script_for(TOUCH)
    last = finish().answer(True)

    def flaky(request: dict[str, Any]) -> Any:
        answered = any(message["role"] == "assistant" for message in request["messages"])
        return odd.pop(0) if answered and odd else last if answered else script(request)

    attempt = work(flaky, llm={"num_retries": 9, "stream": True, "timeout": 5.0})
    assert attempt.reason is StopReason.FINISHED
    assert (attempt.recorder.usage.requests, attempt.recorder.usage.calls) == (9, 4), "with the small request"
