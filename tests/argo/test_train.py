"""GRPO through the real controller: the checkpoints of ``swe-argo train``, whatever happens to its pods meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from swe_argo.steps.contracts.training import run_of
from tests.argo.disturbances import comes, delete, kill_controller
from tests.argo.pipeline import Pipeline
from tests.argo.training import NAME, Gym, gym, ruler
from tests.broken_s3 import Way
from tests.workflows.command import summary

pytest.importorskip("tinker", reason="the extra tinker is not installed")


@pytest.fixture(scope="module")
def place(pipeline: Pipeline, s3_way: Way, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gym]:
    with gym(pipeline, s3_way, tmp_path_factory.mktemp("gym")) as training_gym:
        yield training_gym


@pytest.mark.timeout(1800)
def test_training_survives_killed_pods(place: Gym, tmp_path: Path) -> None:
    """The controller dies while rollouts are collected, the pod that learns while it learns; then one more step."""
    spec = place.spec(NAME, proxy_url=place.follow(NAME), steps=2, held_out={"every": 2, "share": 0.25})
    name = place.submit(NAME, spec)
    comes(lambda: place.pipeline.pods(f"swe-argo/run={run_of(NAME, 1)},swe-argo/step=solve"))
    kill_controller(place.pipeline.cluster, 5)
    with learning(place) as pod:
        delete(place.pipeline, pod)
    assert place.pipeline.ended(name) == "Succeeded", place.describe(NAME)
    assert [workflow_name[-6:] for workflow_name in place.workflows_of(NAME, "round")] == ["000000", "000001", "000002"]
    again = place.submit(NAME, spec, steps=3)
    assert place.pipeline.ended(again) == "Succeeded", place.describe(NAME)
    # The last step once more, for what it may have left, and the one that is new.
    assert [
        workflow_name[-6:] for workflow_name in place.workflows_of(NAME, "round") if workflow_name.startswith(again)
    ] == ["000002", "000003"]
    assert place.learned(NAME) == ruler(tmp_path, {**spec, "steps": 3, "proxy_url": None})
    for run in (f"{NAME}.000000.held-out", f"{NAME}.000002.held-out"):
        assert summary(place.pipeline.store, run).complete
    assert place.pipeline.sandboxes() == []


@contextmanager
def learning(place: Gym) -> Iterator[str]:
    """The pod that learns the first step, in the middle of it: what it asked for is not answered meanwhile."""
    is_asked, go_on = threading.Event(), threading.Event()

    def hold(route: str) -> None:
        if route.endswith("optim_step") and not go_on.is_set():
            is_asked.set()
            go_on.wait(120)

    place.bench.server.before = hold
    try:
        comes(is_asked.is_set)
        (pod,) = place.pipeline.pods(f"swe-argo/run={run_of(NAME, 1)},swe-argo/step=learn")
        yield str(pod["metadata"]["name"])
    finally:
        go_on.set()
        place.bench.server.before = lambda _: None


def test_failed_step_ends_its_training(place: Gym) -> None:
    """Its run is refused: agents work an hour at most. No step follows."""
    spec = place.spec("lost", proxy_url=place.follow("lost"))
    spec["run"]["agent"]["timeout_s"] = 5000
    name = place.submit("lost", spec)
    assert place.pipeline.ended(name) == "Failed", place.describe("lost")
    assert [workflow_name[-6:] for workflow_name in place.workflows_of("lost", "round")] == ["000000", "000001"]
    assert place.learned("lost") == []


def test_stopped_training_leaves_no_pods(place: Gym) -> None:
    spec = place.spec("halted", proxy_url=place.follow("halted"))
    name = place.submit("halted", spec)
    comes(lambda: place.pipeline.pods(f"swe-argo/run={run_of('halted', 1)},swe-argo/step=solve"))
    place.pipeline.kubectl("patch", "workflow", name, "--type=merge", "--patch", '{"spec": {"shutdown": "Stop"}}')
    assert place.pipeline.ended(name) == "Failed"
    for kind in ("round", "evaluate"):
        for workflow_name in place.workflows_of("halted", kind):
            assert place.pipeline.ended(workflow_name) in ("Succeeded", "Failed"), place.describe("halted")
    assert place.pipeline.sandboxes() == []
    pods = place.pipeline.pods(f"swe-argo/run={run_of('halted', 1)}")
    at_work = {pod["metadata"]["name"]: pod["status"]["phase"] for pod in pods}
    assert not {"Pending", "Running"} & set(at_work.values()), at_work
