"""Pods of steps that are drained, preempted and deleted at every moment of their lives: no verdict is lost."""

from __future__ import annotations

from pathlib import Path

from tests.argo.moments import MOMENTS, Disturber
from tests.argo.pipeline import Pipeline
from tests.argo.undisturbed import RunOutcome, assert_same_outcome, local
from tests.workflows.command import summary

RUN = "r-moments"
ATTEMPTS = 1


def test_ended_pod_costs_no_verdict(pipeline: Pipeline, tmp_path: Path) -> None:
    ruler = local(tmp_path, RUN, "--agent", "gold", "--attempts", str(ATTEMPTS))
    disturber = Disturber(pipeline, f"swe-argo/run={RUN},swe-argo/step=grade")
    with disturber.at_work():
        name = pipeline.submit(RUN, agent="gold", attempts=ATTEMPTS)
        pipeline.succeeds(name)
    assert set(disturber.counts) == set(MOMENTS), disturber.counts
    assert summary(pipeline.store, RUN).without_verdict == [], pipeline.describe(name)
    assert_same_outcome(RunOutcome.of(pipeline.store, RUN), ruler)
    assert pipeline.sandboxes() == []
