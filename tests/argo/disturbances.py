"""What disturbs a run on Argo, and the spec whose units take long enough to be disturbed in their middle."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.failure import Failure
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.store import open_store
from tests.argo.pipeline import FOUND, Pipeline
from tests.argo.undisturbed import RunOutcome, assert_same_outcome, local
from tests.cluster.disturbances import dataset, recordings
from tests.cluster.installed_chart import PATIENCE_S, settles
from tests.cluster.real_cluster import Cluster
from tests.workflows.command import HONEST, QUICK, failures, summary

RunFields = dict[str, object]
CALM = "r-calm"


class Weather:
    """Four units whose agents and tests take some seconds each, and what a run of them comes to undisturbed."""

    def __init__(self, pipeline: Pipeline, folder: Path) -> None:
        self.pipeline = pipeline
        rows = pipeline.upload(Path(dataset(folder, dict.fromkeys(QUICK, "sleep 6"))), "rows.jsonl")
        acts = pipeline.upload(Path(recordings(folder / "acts", QUICK, "sleep 6")), "acts")
        self.run_spec: RunFields = {"dataset": rows, "agent": {"name": "replay", "trajectories": acts}}
        self.undisturbed_store = local(folder / "store", CALM, "--dataset", rows, "--trajectories", acts)

    def begin(self, run: str) -> str:
        """Submit a run of the spec; its Workflow's name."""
        return self.pipeline.submit(run, spec=self.run_spec)

    def ends_undisturbed(self, run: str, name: str, seconds: float = PATIENCE_S) -> None:
        """Wait for its end; its report must be the undisturbed one's, and no sandbox left."""
        self.pipeline.succeeds(name, seconds)
        assert summary(self.pipeline.store, run).headline.resolved == len(QUICK), self.pipeline.describe(name)
        assert_same_outcome(RunOutcome.of(self.pipeline.store, run), self.undisturbed_store)
        for data in self.graded(run).values():
            proof = GradeRecord.from_bytes(data).confirmation
            assert proof is not None
            assert proof.outcome in HONEST, proof
        assert self.pipeline.sandboxes() == []

    def graded(self, run: str) -> dict[str, bytes]:
        """Instances that have a verdict, with all that was recorded of it: done again, its times would be others."""
        names = {key(GradeRecord, run, instance, 1): instance for instance in QUICK}
        opened = open_store(self.pipeline.store).get_many(list(names))
        return {names[name]: data for name, data in opened.items()}

    def failures(self, run: str) -> list[Failure]:
        """What failed tries left."""
        return failures(open_store(self.pipeline.store), run)


def at_work(pipeline: Pipeline, role: str, but: Sequence[str] = ()) -> str:
    """Wait until a step's pod has a sandbox for this that runs, another than these; the pod's name.

    Argo must know it to run, too: a pod that it takes for pending would be made again under its name, and cost no try.
    """
    names: list[str] = []

    def one() -> bool:
        for box in pipeline.pods(f"swe-argo/role={role}"):
            (owner,) = box["metadata"]["ownerReferences"]
            running = any("running" in container["state"] for container in box["status"].get("containerStatuses", []))
            if running and owner["name"] not in but and _known_to_run(pipeline, owner):
                names.append(owner["name"])
        return bool(names)

    comes(one)
    return names[0]


def _known_to_run(pipeline: Pipeline, owner: dict[str, Any]) -> bool:
    for step_pod in pipeline.pods(FOUND):
        meta = step_pod["metadata"]
        if ("Pod", meta["name"], meta["uid"]) == (owner["kind"], owner["name"], owner["uid"]):
            nodes = pipeline.workflow(meta["labels"][FOUND])["status"]["nodes"]
            return bool(nodes[meta["annotations"]["workflows.argoproj.io/node-id"]]["phase"] == "Running")
    return False


def delete(pipeline: Pipeline, pod: str) -> None:
    """The pod's object is gone at once, as when a node is taken away."""
    pipeline.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")


def end(pipeline: Pipeline, pod: str) -> None:
    """Delete a pod with its grace period, as a person or a draining node does."""
    pipeline.kubectl("delete", "pod", pod, "--wait=false")


def evict(pipeline: Pipeline, pod: str) -> None:
    """Evict a pod, as ``kubectl drain`` does."""
    pipeline.cluster.evict(pipeline.namespace, pod)


def kill_controller(cluster: Cluster, away_s: float) -> None:
    """Kill the workflow controller, and start a new one after ``away_s`` seconds."""
    file = cluster.state / "run" / "workflow-controller"
    if not file.is_file():
        pytest.skip("this cluster's workflow controller is not a process of this machine")
    os.kill(int(file.read_text().split()[0]), signal.SIGKILL)
    time.sleep(away_s)
    result = cluster.command("up")
    assert result.returncode == 0, result.stderr


def comes(true: Callable[[], object]) -> None:
    """Wait for something that must come."""
    assert settles(true), f"it did not come to hold in {PATIENCE_S} s"
