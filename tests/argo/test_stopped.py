"""A run that is stopped has an honest partial report; submitted again, it does what is missing and nothing twice."""

from __future__ import annotations

from pathlib import Path

from tests.argo.disturbances import Weather, comes
from tests.argo.pipeline import FOUND, Pipeline
from tests.cluster.installed_chart import settles
from tests.workflows.command import QUICK, summary


def test_stopped_run_is_resumed(pipeline: Pipeline, weather: Weather, tmp_path: Path) -> None:
    pipeline.kubectl("patch", "configmap", "swe-argo-limits", "--type=merge", "--patch", '{"data": {"units": "2"}}')
    name = weather.begin("r-stopped")
    try:
        comes(lambda: weather.graded("r-stopped"))
        # What the UI's Stop sends.
        pipeline.kubectl("patch", "workflow", name, "--type=merge", "--patch", '{"spec": {"shutdown": "Stop"}}')
        assert pipeline.ended(name) == "Failed"
    finally:
        pipeline.kubectl("patch", "configmap", "swe-argo-limits", "--type=merge", "--patch", '{"data": {"units": "4"}}')
    assert [pipeline.ended(child) for child in pipeline.children(name)] == ["Failed"]
    assert pipeline.sandboxes() == []
    graded = weather.graded("r-stopped")
    assert 0 < len(graded) < len(QUICK)
    partial = summary(pipeline.store, "r-stopped")
    assert not partial.complete
    assert partial.units == len(QUICK)
    assert partial.headline.resolved == len(graded)
    assert {missing.instance_id for missing in partial.without_verdict} == set(QUICK) - set(graded)

    again = weather.begin("r-stopped")
    weather.ends_undisturbed("r-stopped", again)
    assert weather.graded("r-stopped").items() >= graded.items()  # nothing was graded twice


def test_complete_run_is_not_repeated(pipeline: Pipeline, weather: Weather) -> None:
    weather.ends_undisturbed("r-twice", weather.begin("r-twice"))
    graded = weather.graded("r-twice")
    again = weather.begin("r-twice")
    weather.ends_undisturbed("r-twice", again)
    assert pipeline.children(again) == []
    assert pipeline.node(again, "shards")["phase"] == "Skipped"
    assert weather.graded("r-twice") == graded


def test_workflows_of_one_run_take_turns(pipeline: Pipeline, weather: Weather) -> None:
    one, two = weather.begin("r-both"), weather.begin("r-both")
    comes(lambda: pipeline.workflow(two)["status"].get("phase") == "Pending")
    pipeline.succeeds(one)
    weather.ends_undisturbed("r-both", two)
    assert pipeline.children(two) == []


def test_terminated_run_drops_old_shard(pipeline: Pipeline, weather: Weather) -> None:
    """``argo terminate`` runs no exit handler: the shard goes on by itself."""
    name = weather.begin("r-terminated")
    pipeline.running("swe-argo/run=r-terminated,swe-argo/step=solve", "main")
    pipeline.kubectl("patch", "workflow", name, "--type=merge", "--patch", '{"spec": {"shutdown": "Terminate"}}')
    assert pipeline.ended(name) == "Failed"
    (old,) = pipeline.children(name)
    assert pipeline.workflow(old)["status"]["phase"] == "Running"

    again = weather.begin("r-terminated")
    comes(lambda: pipeline.children(again))
    assert old not in pipeline.children(name)
    working = pipeline.pods("swe-argo/run=r-terminated,swe-argo/step in (solve,grade)")
    assert {pod["metadata"]["labels"][FOUND] for pod in working} <= set(pipeline.children(again))
    weather.ends_undisturbed("r-terminated", again)
    assert settles(lambda: pipeline.places() == 0), "what is gone keeps places of those who wait"


def test_deleted_workflow_takes_its_pods(pipeline: Pipeline, weather: Weather) -> None:
    name = weather.begin("r-deleted")
    pipeline.running("swe-argo/role=solve")
    pipeline.kubectl("delete", "workflow", name, "--timeout=600s")
    comes(lambda: not pipeline.children(name))
    assert pipeline.sandboxes() == []
