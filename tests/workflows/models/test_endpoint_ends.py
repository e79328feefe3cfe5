"""Endpoints that fail in the midst of a run: nothing of it is scored as the agent's, and the same command goes on."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.reports.figures.summary import Summary
from tests.model_server import Answer, Fault, Script, after, call, model_server, play
from tests.model_server.answers import CONTENT_FILTER_AZURE, error
from tests.workflows.command import QUICK, summary
from tests.workflows.models.run import evaluate

WORK = play(call("execute_bash", command="touch done-it"), call("finish"))
QUOTA = error(400, "You have reached your specified API usage limits.", None, "invalid_request_error")
CREDIT = Fault(429, {"code": "The caller has no permission", "error": "Your team has used all available credits."})
PAGE = Fault(403, "<!DOCTYPE html><title>Attention Required!</title>", {"Content-Type": "text/html"})
NO_RETRIES = ("--num-retries", "0", "--retries", "0")


def figures(store: Path) -> Summary:
    return summary(str(store), "run")


def second(fault: Any) -> Script:
    """Every second request of a conversation is refused, ``fault`` says how."""

    def script(request: dict[str, Any]) -> Answer | Fault:
        answered = any(message["role"] == "assistant" for message in request["messages"])
        return fault() if answered else WORK(request)

    return script


@pytest.mark.parametrize("fault", [QUOTA, CREDIT], ids=["Anthropic", "xAI"])
def test_quota_error_stops_run(tmp_path: Path, fault: Fault) -> None:
    with model_server(after(3, fault, WORK)) as server:
        result = evaluate(server, tmp_path, "r2egym", *NO_RETRIES, instances=QUICK[:3], jobs=1)
        assert result.returncode == 3, result.stdout + result.stderr
        # plan's, one unit, one call of the next, and its refusal with the test of it.
        assert server.counts.requests == 5
        report = figures(tmp_path)
        assert (report.failures, report.outcomes["not_run"], report.headline.graded) == ({"model_access": 1}, 1, 1)
        server.script = WORK
        again = evaluate(server, tmp_path, "r2egym", *NO_RETRIES, instances=QUICK[:3], jobs=1)
        assert again.returncode == 0, again.stdout + again.stderr
    assert figures(tmp_path).valid


def test_equal_refusals_stop_run(tmp_path: Path) -> None:
    with model_server(second(lambda: error(400, "Function call is missing a thought_signature."))) as server:
        result = evaluate(server, tmp_path, "r2egym", *NO_RETRIES, instances=QUICK, jobs=1)
        assert result.returncode == 3, result.stdout + result.stderr
        assert "the endpoint rejected 3 units with the same message (Function call is missing a th" in result.stdout
        assert "the model endpoint denied access (first seen at mini__" in result.stdout
        report = figures(tmp_path)
        assert (report.headline.graded, report.outcomes["failed"], report.outcomes["not_run"]) == (0, 3, 1)
        server.script, billed = WORK, server.counts.calls
        again = evaluate(server, tmp_path, "r2egym", *NO_RETRIES, instances=QUICK, jobs=1)
        assert again.returncode == 0, again.stdout + again.stderr
        assert "2 units will run again: the model endpoint had ended the conversation" in again.stdout
        assert server.counts.calls - billed == 1 + 3 + 2, "each goes on after the answer that it had"
    report = figures(tmp_path)
    assert report.cost.usage.calls == server.counts.calls
    assert (report.headline.graded, report.doubts) == (4, [])
    assert not list((tmp_path / "runs/run").glob("endpoint/**/*.json"))


ENDS = {
    "filter": lambda _: CONTENT_FILTER_AZURE,
    "refusals in words of their own": lambda n: error(400, f"messages.{next(n)}: bad"),
}


@pytest.mark.parametrize("fault", ENDS.values(), ids=ENDS.keys())
def test_early_ends_make_run_invalid(tmp_path: Path, fault: Any) -> None:
    numbers = itertools.count()
    with model_server(second(lambda: fault(numbers))) as server:
        result = evaluate(server, tmp_path, "r2egym", *NO_RETRIES, instances=QUICK, jobs=2)
        assert result.returncode == 3, result.stdout + result.stderr
        warning = " ".join(result.stdout[result.stdout.index("! This run is invalid") :].split())
        assert warning.startswith(
            "! This run is invalid: in 4 of 4 solved units the endpoint refused or filtered the conv"
        )
        report = figures(tmp_path)
        assert (report.valid, report.complete, report.failures, report.headline.graded) == (
            False,
            False,
            {"model": 4},
            0,
        )
        official = json.loads(next((tmp_path / "runs/run/report").glob("*.run.json")).read_text())
        assert len(official["incomplete_ids"]) == 4
        server.script = WORK
        again = evaluate(server, tmp_path, "r2egym", *NO_RETRIES, instances=QUICK, jobs=2)
        assert again.returncode == 0, again.stdout + again.stderr
        assert "4 units will run again" in again.stdout
    assert (figures(tmp_path).valid, figures(tmp_path).headline.graded) == (True, 4)


def test_firewall_page_stops_run(tmp_path: Path) -> None:
    met = {"first": True}

    def once() -> Fault | Answer:
        return PAGE if met.pop("first", False) else call("finish")

    with model_server(second(once)) as server:
        result = evaluate(server, tmp_path, "r2egym", *NO_RETRIES, instances=QUICK, jobs=1)
        assert result.returncode == 3, result.stdout + result.stderr
        report = figures(tmp_path)
        assert (report.failures, report.headline.graded) == ({"model": 1}, 3), "the other units went on"
    with model_server(second(lambda: PAGE)) as server:
        result = evaluate(server, tmp_path / "more", "r2egym", *NO_RETRIES, instances=QUICK, jobs=1)
        assert result.returncode == 3, result.stdout + result.stderr
        assert "check for a firewall or a proxy in between; 3 units in a row" in result.stdout
        report = figures(tmp_path / "more")
        assert (report.failures, report.outcomes["not_run"]) == ({"model": 2, "model_access": 1}, 1)
