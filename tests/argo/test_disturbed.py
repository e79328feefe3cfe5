"""Runs on Argo that the world disturbs: they end with the report of an undisturbed one, and leave no sandbox."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.store import open_store
from tests.argo.disturbances import Weather, at_work, delete, end, evict, kill_controller
from tests.argo.pipeline import Pipeline
from tests.broken_s3 import Way
from tests.cluster.disturbances import crash, dataset, eats_memory
from tests.cluster.installed_chart import InstalledChart
from tests.workflows.command import QUICK, failures

SOLVE = "swe-argo/step=solve"


@pytest.fixture
def installed(pipeline: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> InstalledChart:
    """The pipeline's namespace, as the tests of sandboxes know one."""
    folder = tmp_path_factory.mktemp("runs")
    return InstalledChart(pipeline.cluster, pipeline.namespace, pipeline.cluster.kubeconfig, folder)


def lost(pipeline: Pipeline, name: str) -> Counter[str]:
    """Step -> how many of its tries failed, in the run's Workflow and its shards."""
    nodes = [node for workflow in (name, *pipeline.children(name)) for node in pipeline.nodes(workflow)]
    tries = [node for node in nodes if node["type"] == "Pod" and node["phase"] in ("Failed", "Error")]
    return Counter(node["templateName"] for node in tries)


def second_run(pipeline: Pipeline, run: str) -> GradeRecord:
    """The verdict of the run's one unit, which must be that of a second run of its tests; no try failed."""
    opened = open_store(pipeline.store)
    assert not failures(opened, run)
    graded = GradeRecord.from_bytes(opened.get(key(GradeRecord, run, QUICK[0], 1)))
    assert "second_run" in [finding.code for finding in graded.integrity.findings]
    return graded


def test_lost_step_pods_are_made_again(pipeline: Pipeline, weather: Weather) -> None:
    name = weather.begin("r-step-pods")
    delete(pipeline, one := at_work(pipeline, "solve"))
    end(pipeline, at_work(pipeline, "solve", but=[one]))
    end(pipeline, pipeline.running("swe-argo/step=child", "main"))
    delete(pipeline, at_work(pipeline, "grade"))
    weather.ends_undisturbed("r-step-pods", name)
    # A pod whose work was done when it was deleted costs no try.
    assert lost(pipeline, name) <= Counter({"solve": 2, "child": 1, "grade": 1}), pipeline.describe(name)
    assert lost(pipeline, name)["solve"], pipeline.describe(name)


def test_lost_sandboxes_cost_one_try(pipeline: Pipeline, weather: Weather) -> None:
    name = weather.begin("r-sandboxes")
    delete(pipeline, pipeline.running("swe-argo/role=solve"))
    evict(pipeline, pipeline.running("swe-argo/role=solve"))
    evict(pipeline, pipeline.running("swe-argo/role=grade"))
    weather.ends_undisturbed("r-sandboxes", name)
    classes = {failure.failure_class for failure in weather.failures("r-sandboxes")}
    assert classes <= {FailureClass.SANDBOX_LOST, FailureClass.EVICTED}
    assert len(weather.failures("r-sandboxes")) == 3


def test_crashed_grade_is_run_again(pipeline: Pipeline, installed: InstalledChart, tmp_path: Path) -> None:
    """Nobody outside tells that its container did not end by itself: a second run in the same step decides."""
    rows = pipeline.upload(Path(dataset(tmp_path, {QUICK[0]: "sleep 20"})), "crashed.jsonl")
    name = pipeline.submit("r-crash", agent="gold", spec={"dataset": rows})
    crash(installed, pipeline.running("swe-argo/role=grade"))
    pipeline.succeeds(name)
    assert not lost(pipeline, name)
    assert second_run(pipeline, "r-crash").resolved
    assert pipeline.sandboxes() == []


def test_out_of_memory_doubles_memory(pipeline: Pipeline, tmp_path: Path) -> None:
    """They need more than 1.5 times 64 MiB, and less than 3 times that. No kubelet tells of a process in it."""
    rows = pipeline.upload(Path(dataset(tmp_path, {QUICK[0]: f"{eats_memory(120)} || exit"})), "hungry.jsonl")
    run_spec = {"dataset": rows, "sandbox": {"memory_mb": 64}}
    name = pipeline.submit("r-hungry", agent="gold", resource_factor=1.5, spec=run_spec)
    pipeline.succeeds(name)
    assert not lost(pipeline, name)
    graded = second_run(pipeline, "r-hungry")
    assert graded.machine is not None
    assert (graded.machine.memory_mb, graded.machine.resource_factor) == (192, 3.0)
    assert graded.resolved
    assert pipeline.sandboxes() == []


def test_run_survives_dead_controller(pipeline: Pipeline, weather: Weather) -> None:
    name = weather.begin("r-controller")
    pipeline.running(SOLVE, "main")
    kill_controller(pipeline.cluster, away_s=15)
    weather.ends_undisturbed("r-controller", name)
    assert not weather.failures("r-controller")


def test_run_survives_loss_of_s3(pipeline: Pipeline, weather: Weather, s3_way: Way) -> None:
    name = weather.begin("r-no-s3")
    pipeline.running(SOLVE, "main")
    refused = s3_way.refused
    s3_way.break_()
    try:
        time.sleep(60)
    finally:
        s3_way.mend()
    assert s3_way.refused > refused
    weather.ends_undisturbed("r-no-s3", name)
    assert not lost(pipeline, name), "what was done is saved when the store is back"
