"""Every pod of a namespace, as it last was: pods of a run are gone soon after their end."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tests.cluster.real_cluster import Cluster

Pod = dict[str, Any]


def moment(text: str) -> float:
    """Seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


class Watch:
    """``kubectl get pods --watch``, for as long as the block lasts."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.pods: dict[str, Pod] = {}
        self._command = ["kubectl", "-n", namespace, "get", "pods", "--watch", "-o", "json"]
        self._environment = cluster.environment
        self._ended = False
        self._process: subprocess.Popen[str] | None = None

    def run(self) -> None:
        while not self._ended:  # the API server ends a watch after half an hour or more
            with subprocess.Popen(
                self._command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            ) as self._process:
                assert self._process.stdout
                self._read(self._process.stdout)

    def _read(self, lines: Any) -> None:
        text: list[str] = []
        for line in lines:
            text.append(line)
            if line.startswith("}"):  # of the outermost object: all others are indented
                pod = json.loads("".join(text))
                text.clear()
                self.pods[pod["metadata"]["name"]] = pod

    def end(self) -> None:
        self._ended = True
        if self._process:
            self._process.terminate()


@contextlib.contextmanager
def watched(cluster: Cluster, namespace: str) -> Iterator[dict[str, Pod]]:
    """The pods by name, filled while the block lasts."""
    watch = Watch(cluster, namespace)
    thread = threading.Thread(target=watch.run, daemon=True)
    thread.start()
    try:
        yield watch.pods
    finally:
        watch.end()
        thread.join(10)


def parts(pod: Pod) -> dict[str, float]:
    """Seconds of what a step's pod went through, from its creation to its last container's end. Whole seconds each."""
    status = pod["status"]
    created = moment(pod["metadata"]["creationTimestamp"])
    scheduled = next(
        (moment(item["lastTransitionTime"]) for item in status["conditions"] if item["type"] == "PodScheduled"), created
    )
    ran = {
        item["name"]: item["state"]["terminated"]
        for item in (*status.get("initContainerStatuses", []), *status.get("containerStatuses", []))
        if "terminated" in item["state"]
    }
    starts = {name: moment(item["startedAt"]) for name, item in ran.items()}
    ended = {name: moment(item["finishedAt"]) for name, item in ran.items()}
    if not {"init", "main", "wait"} <= ran.keys():
        return {}
    return {
        "pending": scheduled - created,
        "to init": starts["init"] - scheduled,
        "init: inputs": ended["init"] - starts["init"],
        "to main": starts["main"] - ended["init"],
        "main": ended["main"] - starts["main"],
        "wait: outputs": ended["wait"] - ended["main"],
    }
