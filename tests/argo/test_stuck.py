"""Runs that do not move: whoever looks is told why, a stop has an end, and others go on."""

from __future__ import annotations

import pytest

from tests.argo.pipeline import Pipeline
from tests.cluster.installed_chart import PATIENCE_S, settles
from tests.workflows.command import begin, summary

pytestmark = pytest.mark.usefixtures("use_kubeconfig")


def test_unpullable_image_is_reported(pipeline: Pipeline) -> None:
    name = pipeline.submit("r-no-image", agent="gold", k=1, image="localhost/none:1")
    # In another process than this one, which watches it: the words of a log.
    watcher = begin("watch", "r-no-image", "--namespace", pipeline.namespace)
    assert watcher.stdout is not None
    assert any("the pod of plan waits: " in line and "image" in line for line in watcher.stdout)
    stopper = begin("stop", "r-no-image", "--namespace", pipeline.namespace)
    stopped, _ = stopper.communicate(timeout=PATIENCE_S)
    watcher.communicate(timeout=PATIENCE_S)
    assert stopper.returncode == 3, stopped
    assert "without a report, because its last step did not start: the pod of finalize waits: " in stopped
    assert pipeline.ended(name) == "Failed"


def test_short_run_passes_a_long_one(pipeline: Pipeline) -> None:
    """Of the older one more units wait than the namespace has places for."""
    older = pipeline.submit("r-long", agent="idle", attempts=5)
    try:
        pipeline.running("swe-argo/run=r-long,swe-argo/step=grade", "main")
        younger = pipeline.submit("r-short", agent="gold", k=1)
        pipeline.succeeds(younger)
        assert summary(pipeline.store, "r-short").headline.resolved == 1
        assert pipeline.workflow(older)["status"]["phase"] == "Running"
    finally:
        pipeline.kubectl("patch", "workflow", older, "--type=merge", "-p", '{"spec": {"shutdown": "Stop"}}')
        pipeline.ended(older)
    assert settles(lambda: pipeline.places() == 0)
