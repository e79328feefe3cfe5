"""Runs with a failing endpoint: no failure is scored as the agent's, all costs are counted, and runs resume."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.store import open_store
from tests import solutions
from tests.model_server import (
    Answer,
    Fault,
    ModelServer,
    Script,
    after,
    call,
    every,
    flaky,
    model_server,
    play,
    rate_limited,
)
from tests.model_server.answers import CONTENT_FILTER_AZURE, DROP, HANG, SERVER_ERROR, Request, error
from tests.workflows.command import QUICK, begin, failures, ids, summary, swe_argo, wait_for
from tests.workflows.models.run import KEY, assert_resolved, assert_totals, environment, evaluate

INSTANCE = "mini__slugkit-2"
WORK = play(call("execute_bash", command="touch done-it"), call("finish"))
QUOTA = error(400, "You have reached your specified API usage limits.", None, "invalid_request_error")
CREDIT = Fault(429, {"code": "The caller has no permission", "error": "Your team has used all available credits."})
PAGE = Fault(403, "<!DOCTYPE html><title>Attention Required!</title>", {"Content-Type": "text/html"})
NO_RETRIES = ("--num-retries", "0", "--retries", "0")


def figures(store: Path) -> Summary:
    return summary(str(store), "run")


def run(server: ModelServer, store: Path, code: int, *words: str, instances: int = 4, jobs: int = 1) -> str:
    """Run r2egym on quick instances without retries; check the exit code, return the output."""
    result = evaluate(server, store, "r2egym", *NO_RETRIES, *words, instances=QUICK[:instances], jobs=jobs)
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout


def second(fault: Any) -> Script:
    """Refuse every second request of a conversation with what ``fault`` returns."""

    def script(request: dict[str, Any]) -> Answer | Fault:
        answered = any(message["role"] == "assistant" for message in request["messages"])
        return fault() if answered else WORK(request)

    return script


LONG_XAI = pytest.param(CREDIT, id="xAI", marks=pytest.mark.long)


@pytest.mark.parametrize("fault", [pytest.param(QUOTA, id="Anthropic"), LONG_XAI])
def test_quota_error_stops_run(tmp_path: Path, fault: Fault) -> None:
    with model_server(after(3, fault, WORK)) as server:
        run(server, tmp_path, 3, instances=3)
        # plan's, one unit, one call of the next, and its refusal with the test of it.
        assert server.counts.requests == 5
        report = figures(tmp_path)
        assert (report.failures, report.outcomes["not_run"], report.headline.graded) == ({"model_access": 1}, 1, 1)
        server.script = WORK
        run(server, tmp_path, 0, instances=3)
    assert figures(tmp_path).valid


def test_equal_refusals_stop_run(tmp_path: Path) -> None:
    with model_server(second(lambda: error(400, "Function call is missing a thought_signature."))) as server:
        output = run(server, tmp_path, 3)
        assert "the endpoint rejected 3 units with the same message (Function call is missing a th" in output
        assert "the model endpoint denied access (first seen at mini__" in output
        report = figures(tmp_path)
        assert (report.headline.graded, report.outcomes["failed"], report.outcomes["not_run"]) == (0, 3, 1)
        server.script, billed = WORK, server.counts.calls
        output = run(server, tmp_path, 0)
        assert "2 units will run again: the model endpoint had ended the conversation" in output
        assert server.counts.calls - billed == 1 + 3 + 2, "each resumes after its recorded answer"
    report = figures(tmp_path)
    assert report.cost.usage.calls == server.counts.calls
    assert (report.headline.graded, report.doubts) == (4, [])
    assert not list((tmp_path / "runs/run").glob("endpoint/**/*.json"))


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda _: CONTENT_FILTER_AZURE, id="filter"),
        pytest.param(lambda n: error(400, f"messages.{next(n)}: bad"), id="own words", marks=pytest.mark.long),
    ],
)
def test_early_ends_make_run_invalid(tmp_path: Path, fault: Any) -> None:
    numbers = itertools.count()
    with model_server(second(lambda: fault(numbers))) as server:
        output = run(server, tmp_path, 3, jobs=2)
        warning = " ".join(output[output.index("! This run is invalid") :].split())
        invalid = "! This run is invalid: in 4 of 4 solved units the endpoint refused or filtered the conv"
        assert warning.startswith(invalid)
        report = figures(tmp_path)
        assert (report.valid, report.complete, report.headline.graded) == (False, False, 0)
        assert report.failures == {"model": 4}
        official = json.loads(next((tmp_path / "runs/run/report").glob("*.run.json")).read_text())
        assert len(official["incomplete_ids"]) == 4
        server.script = WORK
        assert "4 units will run again" in run(server, tmp_path, 0, jobs=2)
    assert (figures(tmp_path).valid, figures(tmp_path).headline.graded) == (True, 4)


def test_firewall_page_stops_run(tmp_path: Path) -> None:
    met = {"first": True}
    with model_server(second(lambda: PAGE if met.pop("first", False) else call("finish"))) as server:
        run(server, tmp_path, 3, instances=2)
        report = figures(tmp_path)
        assert (report.failures, report.headline.graded) == ({"model": 1}, 1), "the other unit went on"
        server.script = second(lambda: PAGE)
        output = run(server, tmp_path / "more", 3)
        assert "check for a firewall or a proxy in between; 3 units in a row" in output
        report = figures(tmp_path / "more")
        assert (report.failures, report.outcomes["not_run"]) == ({"model": 2, "model_access": 1}, 1)


# -- endpoints that answer, but nothing of use


@pytest.mark.long
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("I would rather not.", 'contained no valid tool call; one began: "I would rather not."'),
        ("", "were empty; the server sent no text"),
    ],
)
def test_mute_model_raises_doubt(content: str, message: str, tmp_path: Path) -> None:
    with model_server(play(*[Answer(content)] * 200)) as server:
        result = evaluate(server, tmp_path, "r2egym", "--use-fn-calling", "true", instances=QUICK[:2])
    doubt = figures(tmp_path).doubts[0]
    assert "of the model's" in doubt, result.stdout + result.stderr
    assert message in doubt
    assert "Try --use-fn-calling false in a new run" in doubt
    assert "of the model's" in result.stdout


def test_empty_trajectory_has_remedy(tmp_path: Path) -> None:
    too_long = error(400, "This model's maximum context length is 10 tokens.", "context_length_exceeded")
    with model_server(after(1, too_long, play(Answer("The probe is answered.")))) as server:
        evaluate(server, tmp_path, "r2egym", instances=QUICK[:1])
    [doubt] = [text for text in figures(tmp_path).doubts if "made no step" in text]
    assert doubt.startswith("In 1 unit the agent made no step, so the trajectory is empty (context overflow 1): serve")
    output = swe_argo("show", "--store", str(tmp_path), "run", QUICK[0]).stdout
    assert "The agent made no step, so its trajectory is empty (context overflow: the endpoint rejected" in output
    assert "lower --max-output-tokens" in output


@pytest.mark.long
def test_endpoint_failure_is_shown(tmp_path: Path) -> None:
    with model_server(after(1, error(500, "out of order"), play(Answer("The probe is answered.")))) as server:
        evaluate(server, tmp_path, "r2egym", *NO_RETRIES, instances=QUICK[:1])
    output = swe_argo("show", "--store", str(tmp_path), "run", QUICK[0]).stdout
    assert re.search(r"stopped: interrupted, 0 turns.*: model: .*failed: 500: out of order", output)
    assert "once it works, start the same run again" in output


# -- faults that pass, and a killed runner


@pytest.mark.long
def test_token_counts_are_exact(tmp_path: Path) -> None:
    look = Answer("", calls=call("execute_bash", cmd="ls").calls, completion_tokens=7, cached_tokens=3)
    script: Script = every(5, SERVER_ERROR, play(look, look, call("finish", command="submit")))
    words = ["--attempts", "8", "--use-fn-calling", "true"]
    instances = list(solutions.rows())[:8]
    with model_server(script, key=KEY, latency_s=0.3) as server:
        result = evaluate(server, tmp_path, "r2egym", *words, instances=instances, jobs=64)
    assert result.returncode == 0, result.stdout + result.stderr
    assert server.counts.by_status.get("500"), "no fault was met"
    assert_totals(tmp_path, server.counts)


@pytest.mark.long
def test_endpoint_faults_keep_verdicts(tmp_path: Path) -> None:
    script = flaky(solutions.solving("r2egym", fn_calling=False), rate_limited(0), DROP)
    with model_server(script, key=KEY) as server:
        result = evaluate(server, tmp_path, "r2egym", "--use-fn-calling", "false", instances=[INSTANCE])
    assert result.returncode == 0, result.stdout + result.stderr
    assert_resolved(tmp_path, INSTANCE)
    assert_totals(tmp_path, server.counts)
    assert server.counts.requests == 3 * server.counts.calls


@pytest.mark.long
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
    assert result.returncode == 0, result.stdout + result.stderr
    assert_resolved(tmp_path, INSTANCE)
    usage = figures(tmp_path).cost.usage
    assert (usage.calls, usage.completion_tokens) == (server.counts.calls, server.counts.completion_tokens)
    (failure,) = failures(open_store(str(tmp_path)), "run")
    assert failure.failure_class is FailureClass.STEP_KILLED
    assert failure.usage.calls == 2
