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
    ("content", "said"),
    [
        ("I would rather not.", 'held no call that could be made; one began: "I would rather not."'),
        pytest.param("", "held nothing at all; the server sent no text", marks=pytest.mark.long),
    ],
)
@pytest.mark.long
def test_a_model_that_never_calls_anything_is_a_doubt(content: str, said: str, tmp_path: Path) -> None:
    with model_server(play(*[Answer(content)] * 200)) as server:
        done = evaluate(server, tmp_path, "r2egym", "--use-fn-calling", "true", instances=QUICK[:2])
    told = summary(str(tmp_path), "run")
    assert "of the model's" in told.doubts[0], done.stdout + done.stderr
    assert said in told.doubts[0]
    assert "Try --use-fn-calling false in a new run" in told.doubts[0]
    assert "of the model's" in done.stdout


def test_an_agent_that_made_no_step_says_why_and_what_to_do(tmp_path: Path) -> None:
    too_long = error(400, "This model's maximum context length is 10 tokens.", "context_length_exceeded")
    with model_server(after(1, too_long, play(Answer("The probe is answered.")))) as server:
        evaluate(server, tmp_path, "r2egym", instances=QUICK[:1])
    [doubt] = [each for each in summary(str(tmp_path), "run").doubts if "made no step" in each]
    assert doubt.startswith("In 1 unit the trajectory is empty, the agent made no step (context overflow 1): serve")
    shown = swe_argo("show", "--store", str(tmp_path), "run", QUICK[0]).stdout
    assert "The trajectory is empty, the agent made no step (context overflow: the endpoint refused" in shown
    assert "lower --max-output-tokens" in shown


@pytest.mark.long
def test_what_an_endpoint_failed_by_stands_beside_a_trajectory_without_steps(tmp_path: Path) -> None:
    with model_server(after(1, error(500, "out of order"), play(Answer("The probe is answered.")))) as server:
        evaluate(server, tmp_path, "r2egym", "--num-retries", "0", "--retries", "0", instances=QUICK[:1])
    shown = swe_argo("show", "--store", str(tmp_path), "run", QUICK[0]).stdout
    assert re.search(r"stopped: interrupted, 0 turns.*: model: .*failed: 500: out of order", shown)
    assert "run it again when it is well" in shown
