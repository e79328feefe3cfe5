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
from tests.steps.agents.test_loop import TOUCH, Work, finish, said

WORDINGS = Path(__file__).parents[1] / "models" / "wordings.jsonl"
NAMED = ("Moonshot", "xAI", "Zhipu", "DashScope", "TGI", "TensorRT-LLM", "LMDeploy")
OVERFLOWS = [
    told
    for told in map(json.loads, WORDINGS.read_text("utf-8").splitlines())
    if told["means"] == "overflow" and told["who"].startswith(NAMED)
]
LATE = error(400, "Invalid 'messages[4].content'", "invalid_value", "invalid_request_error")


@pytest.fixture
def work(box: Box, tmp_path: Path) -> Work:
    return Work(box, tmp_path / "try" / "trajectory.json")


@pytest.mark.parametrize("told", OVERFLOWS, ids=lambda told: told["who"])
def test_a_conversation_that_is_too_long_in_whatever_words_keeps_its_changes(work: Work, told: dict[str, Any]) -> None:
    done = work(said(TOUCH, Fault(told["status"], told["body"])), llm={"num_retries": 3})
    assert done.reason is StopReason.CONTEXT_OVERFLOW
    assert (work.box.testbed / "done-it").exists()


@pytest.mark.parametrize("fault", [LATE, error(400, "top_p is not supported")])
def test_what_is_refused_late_keeps_its_changes_and_what_the_endpoint_said(work: Work, fault: Fault) -> None:
    done = work(said(TOUCH, fault), llm={"num_retries": 3})
    assert done.reason is StopReason.REQUEST_REFUSED
    assert (work.box.testbed / "done-it").exists()
    assert done.server.counts.requests == 4, "the same once more, after plan's small request"
    if fault is LATE:
        assert done.journal.note == "Invalid 'messages[4].content'"


def test_a_conversation_goes_on_over_every_answer_that_was_none(work: Work) -> None:
    large = replace(rate_limited(), status=413)
    odd = [Fault(200, {"choices": None}), NO_CHOICES, DRIP, LATE, large, SERVER_ERROR]
    script = said(TOUCH)
    last = finish().said(True)

    def flaky(request: dict[str, Any]) -> Any:
        answered = any(message["role"] == "assistant" for message in request["messages"])
        return odd.pop(0) if answered and odd else last if answered else script(request)

    done = work(flaky, llm={"num_retries": 9, "stream": True, "timeout": 5.0})
    assert done.reason is StopReason.FINISHED
    assert (done.journal.usage.requests, done.journal.usage.calls) == (9, 4), "with the small request"
