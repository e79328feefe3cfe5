"""A runner that is killed in the midst of conversations: nothing that was answered, and paid for, is forgotten."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.store import open_store
from tests import solutions
from tests.model_server import Answer, Fault, model_server
from tests.model_server.answers import HANG, Request
from tests.workflows.command import begin, failures, ids, summary, wait_for
from tests.workflows.models.run import environment, evaluate

pytestmark = pytest.mark.long

INSTANCE = "mini__slugkit-2"


def test_killed_units_keep_their_cost(tmp_path: Path) -> None:
    good = solutions.solving("r2egym")
    hung: list[Request] = []

    def script(request: Request) -> Answer | Fault:
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        if turn == 2 and not hung:
            hung.append(request)
            return HANG
        return good(request)

    with model_server(script) as server:
        words = ["--store", str(tmp_path), "--run-id", "run", "--agent", "r2egym", "--model", "openai/scripted"]
        words += ["--use-fn-calling", "true", "--allow-host", *ids(INSTANCE)]
        runner = begin("run", *words, env=environment(server))
        wait_for(lambda: hung)
        os.killpg(runner.pid, signal.SIGKILL)
        runner.communicate()
        result = evaluate(server, tmp_path, "r2egym", "--use-fn-calling", "true", instances=[INSTANCE])
        counts = server.counts
    assert result.returncode == 0, result.stdout + result.stderr
    report = summary(str(tmp_path), "run")
    assert report.headline.resolved == 1
    assert report.cost.usage.calls == counts.calls
    assert report.cost.usage.completion_tokens == counts.completion_tokens
    (failure,) = failures(open_store(str(tmp_path)), "run")
    assert failure.failure_class is FailureClass.STEP_KILLED
    assert failure.usage.calls == 2
