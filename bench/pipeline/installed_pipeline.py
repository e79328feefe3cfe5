"""The pipeline installed for a measurement, and runs of sleeping units there."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.pipeline import sleeps
from bench.pipeline.images import TAG, load_images
from bench.pipeline.machine import busy_s, daemons_s, own_s, pods_s
from bench.pipeline.timeline import Timed, units
from bench.pipeline.watching import Pod, moment, watched
from swe_argo.steps.settings import settings
from swe_argo.steps.store import open_store
from tests.argo.pipeline import ENDED, S3, Pipeline, installed
from tests.cluster.real_cluster import Cluster, KubectlError

S3_KEYS = {
    "AWS_ENDPOINT_URL_S3": f"http://{S3[0]}:{S3[1]}",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
LOOK_S = 10.0
"""Between looks at a run: each is a kubectl or two, which are CPU too."""
MOST_FAILURES = 10
"""Looks in a row that may fail."""


@dataclass
class Ran:
    """A run of sleeping units, and what it took."""

    sleeps: list[float]
    seconds: float
    """From the spec to the end of the Workflow."""
    cpu_s: float
    daemons_s: dict[str, float]
    pods_s: dict[str, float]
    """uid of a pod -> its CPU seconds."""
    units: list[Timed]
    pods: dict[str, Pod]
    parent: dict[str, Any]
    shards: list[dict[str, Any]]
    stages: dict[str, dict[str, float]] = field(default_factory=dict)
    """instance -> stage of solve and of grade -> seconds, as the steps say."""

    @property
    def makespan_s(self) -> float:
        """From the first unit's begin to the last one's end."""
        return max(unit.end for unit in self.units) - min(unit.begin for unit in self.units)

    def slept(self, unit: Timed) -> float:
        return self.sleeps[int(unit.instance.rpartition("-")[2])]

    @property
    def beside_s(self) -> list[float]:
        """Seconds of each unit beside its sleep."""
        return [unit.seconds - self.slept(unit) for unit in self.units]

    @property
    def before_s(self) -> float:
        """From the spec to the first unit."""
        return min(unit.begin for unit in self.units) - moment(self.parent["metadata"]["creationTimestamp"])

    @property
    def after_s(self) -> float:
        """From the last unit to the end of the run."""
        return moment(self.parent["status"]["finishedAt"]) - max(unit.end for unit in self.units)


@contextlib.contextmanager
def prepared(kubeconfig: Path, places: int) -> Iterator[Pipeline]:
    """The chart in a namespace of its own, for so many units at a time; all images on the node."""
    cluster = Cluster(kubeconfig.resolve())
    is_installed = "workflowtemplates" in cluster.kubectl("api-resources", "--api-group=argoproj.io", "-o", "name")
    if not is_installed:
        raise RuntimeError("this cluster has no Argo Workflows: make argo-binaries, then cluster/local/cluster argo")
    load_images(cluster)
    os.environ.update(S3_KEYS)
    settings.cache_clear()
    flags = ["--set", f"limits.units={places}", "--set-string", f"image.tag={TAG}"]
    with installed(cluster, S3_KEYS["AWS_ENDPOINT_URL_S3"], *flags) as pipeline:
        yield pipeline


def limit(pipeline: Pipeline, places: int) -> None:
    """So many units at a time from now on."""
    patch = {"data": {"units": str(places)}}
    pipeline.kubectl("patch", "configmap", "swe-argo-limits", "--type=merge", f"--patch={json.dumps(patch)}")


def ran(pipeline: Pipeline, run: str, seconds: list[float]) -> Ran:
    """Run units that sleep so long, and wait for the end. Raises RuntimeError when it is not a good one."""
    with tempfile.TemporaryDirectory() as folder:
        sleeps.write(Path(folder), seconds)
        rows = pipeline.upload(Path(folder, "rows.jsonl"), f"{run}-rows.jsonl")
        recorded = pipeline.upload(Path(folder, "recorded"), f"{run}-recorded")
    run_spec = {"dataset": rows, "agent": {"trajectories": recorded, "command_timeout_s": 900}}
    with watched(pipeline.cluster, pipeline.namespace) as pods, pods_s() as of_pods:
        before, daemons, began = busy_s() - own_s(), daemons_s(), time.monotonic()
        workflow = pipeline.submit(run, agent="replay", spec=run_spec)
        shards = _followed(pipeline, run, workflow, len(seconds))
        took = time.monotonic() - began
        parent = pipeline.workflow(workflow)
        time.sleep(20)  # its pods are put away: that is work of the run too
        cpu, after = busy_s() - own_s() - before, daemons_s()
    if parent["status"]["phase"] != "Succeeded":
        raise RuntimeError(f"{workflow} is {parent['status']['phase']}:\n{pipeline.describe(workflow)}")
    ends = units(shards)
    if len(ends) != len(seconds):
        raise RuntimeError(f"{len(ends)} of {len(seconds)} units ended well:\n{pipeline.describe(workflow)}")
    spent = {name: after[name] - daemons.get(name, 0.0) for name in after}
    return Ran(seconds, took, cpu, spent, of_pods, ends, dict(pods), parent, shards, _stages(pipeline.store, run, ends))


def _followed(pipeline: Pipeline, run: str, workflow: str, count: int) -> list[dict[str, Any]]:
    """Wait for the run's end; its shards, each as it was when it ended: they are gone some minutes later."""
    finished: dict[str, dict[str, Any]] = {}
    began = time.monotonic()
    columns = "-o=jsonpath={range .items[*]}{.metadata.name} {.status.phase} {.status.progress}{'\\n'}{end}"
    status, failures = "", 0
    while True:
        try:
            lines = [
                line.split()
                for line in pipeline.kubectl("get", "workflows", f"-lswe-argo/run={run}", columns).splitlines()
            ]
            phases = {line[0]: line[1] for line in lines if len(line) > 1}
            for name, phase in phases.items():
                if name.startswith(f"{workflow}-s") and phase in ENDED and name not in finished:
                    finished[name] = pipeline.workflow(name)
            failures = 0
        except (KubectlError, subprocess.TimeoutExpired) as error:  # a hiccup of the API server, in half an hour
            failures += 1
            sys.stderr.write(f"pipeline: {error}\n")
            if failures > MOST_FAILURES:
                raise
            time.sleep(LOOK_S)
            continue
        before, status = status, ", ".join(" ".join(line) for line in lines)
        if status != before:
            sys.stderr.write(f"pipeline: {time.monotonic() - began:5.0f} s, {count} units: {status}\n")
        if phases.get(workflow) in ENDED:
            return [finished[name] for name in sorted(finished)]
        time.sleep(LOOK_S if count > 10 else LOOK_S / 4)


def _stages(store: str, run: str, timed: list[Timed]) -> dict[str, dict[str, float]]:
    stored = open_store(store)
    stages: dict[str, dict[str, float]] = {}
    for unit in timed:
        stages[unit.instance] = {
            f"{step} {stage}": seconds
            for step in ("solve", "grade")
            for stage, seconds in json.loads(stored.get(f"runs/{run}/units/{unit.instance}/1/{step}.json"))[
                "seconds"
            ].items()
        }
    return stages
