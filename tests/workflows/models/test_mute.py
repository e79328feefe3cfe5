"""An endpoint that answers and says nothing of use: the run says so on top, and a person knows what to try."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.model_server import Answer, after, model_server, play
from tests.model_server.answers import error
from tests.workflows.command import QUICK, summary, swe_argo
from tests.workflows.models.run import evaluate


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("I would rather not.", 'contained no valid tool call; one began: "I would rather not."'),
        pytest.param("", "were empty; the server sent no text", marks=pytest.mark.long),
    ],
)
@pytest.mark.long
def test_mute_model_raises_doubt(content: str, message: str, tmp_path: Path) -> None:
    with model_server(play(*[Answer(content)] * 200)) as server:
        result = evaluate(server, tmp_path, "r2egym", "--use-fn-calling", "true", instances=QUICK[:2])
    report = summary(str(tmp_path), "run")
    assert "of the model's" in report.doubts[0], result.stdout + result.stderr
    assert message in report.doubts[0]
    assert "Try --use-fn-calling false in a new run" in report.doubts[0]
    assert "of the model's" in result.stdout


def test_empty_trajectory_has_remedy(tmp_path: Path) -> None:
    too_long = error(400, "This model's maximum context length is 10 tokens.", "context_length_exceeded")
    with model_server(after(1, too_long, play(Answer("The probe is answered.")))) as server:
        evaluate(server, tmp_path, "r2egym", instances=QUICK[:1])
    [doubt] = [text for text in summary(str(tmp_path), "run").doubts if "made no step" in text]
    assert doubt.startswith("In 1 unit the agent made no step, so the trajectory is empty (context overflow 1): serve")
    output = swe_argo("show", "--store", str(tmp_path), "run", QUICK[0]).stdout
    assert "The agent made no step, so its trajectory is empty (context overflow: the endpoint rejected" in output
    assert "lower --max-output-tokens" in output


@pytest.mark.long
def test_endpoint_failure_is_shown(tmp_path: Path) -> None:
    with model_server(after(1, error(500, "out of order"), play(Answer("The probe is answered.")))) as server:
        evaluate(server, tmp_path, "r2egym", "--num-retries", "0", "--retries", "0", instances=QUICK[:1])
    output = swe_argo("show", "--store", str(tmp_path), "run", QUICK[0]).stdout
    assert re.search(r"stopped: interrupted, 0 turns.*: model: .*failed: 500: out of order", output)
    assert "once it works, start the same run again" in output
