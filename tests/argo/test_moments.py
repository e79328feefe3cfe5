"""Pods of steps that are drained, preempted and deleted at every moment of their lives: no verdict is lost."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.argo.disturbances import end, evict
from tests.argo.pipeline import Pipeline
from tests.argo.undisturbed import RunOutcome, assert_same_outcome, local
from tests.cluster.real_cluster import KubectlError
from tests.workflows.command import summary

MOMENTS = ("made", "init", "starting", "started", "working", "saving")
"""Before init runs; while it does; as Argo's two containers are started; as argoexec starts there; while the step
works; when it has ended and its files are being saved."""
OF_STARTING = 3
"""Pods ended while they start, for each that is ended at another moment: starting is the shortest moment."""


def moment(pod: dict[str, Any]) -> str:
    """Return the moment in a pod's life by its status; "" if it has ended."""
    status = pod.get("status") or {}
    if status.get("phase") not in ("Pending", "Running"):
        return ""
    (init,) = [container["state"] for container in status.get("initContainerStatuses") or [{"state": {}}]]
    if "terminated" not in init:
        return "init" if "running" in init else "made"
    states = {container["name"]: container["state"] for container in status.get("containerStatuses") or []}
    if "terminated" in states.get("main", {}):
        return "saving"
    return "started" if "running" in states.get("main", {}) else "starting"


@dataclass
class Disturber:
    """Ends each pod of a step once, its retries never, the moments in turn."""

    pipeline: Pipeline
    selector: str
    counts: Counter[str] = field(default_factory=Counter)
    names: list[str] = field(default_factory=list)
    _expected: dict[str, str] = field(default_factory=dict)
    _chance: random.Random = field(default_factory=lambda: random.Random(4))

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """For as long as the block lasts."""
        command = ["kubectl", "-n", self.pipeline.namespace, "get", "pods", "-l", self.selector]
        command += ["--watch", "--output-watch-events", "-o", "json"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, env=self.pipeline.cluster.environment, text=True
        ) as watch:
            thread = threading.Thread(target=self._follow, args=(watch,))
            thread.start()
            try:
                yield
            finally:
                watch.terminate()
                thread.join(30)

    def _follow(self, watch: subprocess.Popen[str]) -> None:
        assert watch.stdout is not None
        turns = itertools.cycle([*MOMENTS, *["starting", "started"] * (OF_STARTING - 1)])
        for line in watch.stdout:
            event = json.loads(line)
            pod = event["object"]
            name = pod["metadata"]["name"]
            first = pod["metadata"]["annotations"].get("workflows.argoproj.io/node-name", "").endswith("(0)")
            if event["type"] == "DELETED" or "deletionTimestamp" in pod["metadata"] or not first:
                continue
            if name not in self._expected:
                self._expected[name] = next(turns)
            if name not in self.names and self._is_time(self._expected[name], pod):
                self.names.append(name)
                act = (evict, end, preempt)[len(self.names) % 3]
                threading.Thread(target=self._end, args=(act, name, self._expected[name])).start()

    def _is_time(self, target_moment: str, pod: dict[str, Any]) -> bool:
        if target_moment == "init":  # a kubelet tells of a container that short only when it has ended
            return "nodeName" in pod["spec"] and moment(pod) in ("made", "init")
        return moment(pod) == {"working": "started"}.get(target_moment, target_moment)

    def _end(self, act: Callable[[Pipeline, str], None], name: str, target_moment: str) -> None:
        least, most = {
            "init": (0.5, 2.0),
            "starting": (0.0, 0.6),
            "started": (0.0, 0.1),
            "working": (3.0, 3.0),
            "saving": (0.0, 0.5),
        }.get(target_moment, (0.0, 0.0))
        time.sleep(self._chance.uniform(least, most))
        try:
            act(self.pipeline, name)
        except KubectlError as error:
            if "not found" not in str(error).lower():
                raise
        else:
            self.counts[target_moment] += 1


def preempt(pipeline: Pipeline, pod: str) -> None:
    """Preempt a pod as the scheduler does (preemption.go): set the condition, then delete it."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "for a test",
    }
    change = json.dumps({"status": {"conditions": [condition]}})
    pipeline.kubectl("patch", "pod", pod, "--subresource=status", "--type=strategic", "--patch", change)
    end(pipeline, pod)


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
