"""Many units at a time, through faults: every call and every token is in the report, and no unit is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.steps.contracts.trajectory import StopReason
from tests import solutions
from tests.model_server import Answer, Script, call, every, flaky, function_text, model_server, play, rate_limited
from tests.model_server.answers import DROP, SERVER_ERROR
from tests.workflows.command import summary
from tests.workflows.models.run import KEY, evaluate, files_with, trajectory

pytestmark = pytest.mark.long


def totals(store: Path) -> tuple[int, int, int, int]:
    """Calls, requests, tokens in and out, as the report has them."""
    usage = summary(str(store), "run").cost.usage
    return usage.calls, usage.requests, usage.prompt_tokens, usage.completion_tokens


def test_token_counts_are_exact(tmp_path: Path) -> None:
    look = Answer("", calls=call("execute_bash", cmd="ls").calls, completion_tokens=7, cached_tokens=3)
    script: Script = every(5, SERVER_ERROR, play(look, look, call("finish", command="submit")))
    words = ["--attempts", "8", "--use-fn-calling", "true"]
    instances = list(solutions.rows())[:8]
    with model_server(script, key=KEY, latency_s=0.3) as server:
        result = evaluate(server, tmp_path, "r2egym", *words, instances=instances, jobs=64)
        counts = server.counts
    assert result.returncode == 0, result.stdout + result.stderr
    assert counts.by_status.get("500"), "no fault was met"
    assert totals(tmp_path) == (counts.calls, counts.requests, counts.prompt_tokens, counts.completion_tokens)
    assert summary(str(tmp_path), "run").cost.usage.cached_tokens == counts.cached_tokens
    assert files_with(tmp_path, KEY) == []


def test_endpoint_faults_keep_verdicts(tmp_path: Path) -> None:
    instance = "mini__slugkit-2"
    script = flaky(solutions.solving("r2egym", fn_calling=False), rate_limited(0), DROP)
    with model_server(script, key=KEY) as server:
        result = evaluate(server, tmp_path, "r2egym", "--use-fn-calling", "false", instances=[instance])
        counts = server.counts
    assert result.returncode == 0, result.stdout + result.stderr
    assert summary(str(tmp_path), "run").headline.resolved == 1
    assert totals(tmp_path) == (counts.calls, counts.requests, counts.prompt_tokens, counts.completion_tokens)
    assert counts.requests == 3 * counts.calls


def test_malformed_answers_are_corrected(tmp_path: Path) -> None:
    instance = "mini__slugkit-2"
    good = solutions.answers(instance, "openhands", fn_calling=False)
    bad = [Answer("I only think aloud."), function_text("run_tests"), Answer("<function=execute_bash>")]
    script = play(*bad[:2], *good[:1], bad[2], *good[1:])
    with model_server(script, key=KEY) as server:
        result = evaluate(server, tmp_path, "openhands", "--use-fn-calling", "false", instances=[instance])
    assert result.returncode == 0, result.stdout + result.stderr
    assert summary(str(tmp_path), "run").headline.resolved == 1
    did = trajectory(tmp_path, instance)
    assert did.extra.stop_reason is StopReason.FINISHED
    assert did.extra.usage.calls == len(good) + len(bad)
