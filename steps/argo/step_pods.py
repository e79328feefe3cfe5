"""Waiting for the end of a run's step pods: a sandbox may be removed only when nobody works in it."""

from __future__ import annotations

import time

from swe_argo.steps.argo.node_failures import LIST
from swe_argo.steps.argo.shards import delete_object, list_objects, names_only
from swe_argo.steps.contracts.chain import GRADE, SOLVE
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.workflow_marks import RUN, STEP
from swe_argo.steps.errors import InfraError
from swe_argo.steps.kube.client import Cluster

UNENDED = "status.phase!=Succeeded,status.phase!=Failed"
KILL_S = 45.0
"""Seconds for a deleted pod: the 30 s that Kubernetes gives its processes, and the kubelet's report."""


def end_step_pods(cluster: Cluster, run_id: str, *, patience_s: float, pause_s: float = 1.0) -> list[str]:
    """Wait until no pod of the run's units runs any more, and delete the rest; return the names of the deleted.

    A stopped step has 30 s to remove its sandbox, and its files are stored after that. Raises InfraError if some still
    run (a node that is out of reach), ConfigError without the rights.
    """
    running = running_step_pods(cluster, run_id, patience_s, pause_s)
    for name in running:
        delete_object(cluster, "pods", name, field="--namespace")
    if running and (still := running_step_pods(cluster, run_id, KILL_S, pause_s)):
        raise InfraError(
            FailureClass.NODE_LOST,
            f"{len(still)} pods of the run's steps do not end, {still[0]} for one: their node may be lost",
        )
    return running


def running_step_pods(cluster: Cluster, run_id: str, patience_s: float, pause_s: float) -> list[str]:
    """Return the pods of the run's units that still run after ``patience_s``."""
    until = time.monotonic() + patience_s
    while (running := _running(cluster, run_id)) and time.monotonic() < until:
        time.sleep(pause_s)
    return running


def _running(cluster: Cluster, run_id: str) -> list[str]:
    steps = f"{RUN}={run_id},{STEP} in ({LIST},{SOLVE.name},{GRADE.name})"
    with cluster.client() as client:
        pods = list_objects(names_only(client), cluster, "pods", steps, fieldSelector=UNENDED)
        return [each["metadata"]["name"] for each in pods]
