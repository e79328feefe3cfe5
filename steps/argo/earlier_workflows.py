"""Removal of shards of a run's earlier Workflows, before the run is planned again.

``argo terminate`` ends a run's Workflow and none of its shards: they would run the same units beside the new ones.
"""

from __future__ import annotations

from swe_argo.steps.argo.shards import delete_object, list_objects, names_only
from swe_argo.steps.argo.step_pods import running_step_pods
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.workflow_marks import COMPLETED, KIND, PARENT, RUN
from swe_argo.steps.errors import InfraError
from swe_argo.steps.kube.client import Cluster

PODS_END_S = 180.0
"""Seconds for the pods of deleted shards: 30 to remove a sandbox, the rest for delays of a busy cluster."""


def remove_earlier_shards(
    cluster: Cluster, run_id: str, own: str, *, patience_s: float = PODS_END_S, pause_s: float = 1.0
) -> list[str]:
    """Delete the run's running shards whose parent is not the Workflow ``own``; return their names.

    Afterwards no step of the run works. Shards are deleted, not stopped: Argo releases all semaphore holds of a deleted
    Workflow (see semaphores.py), and its result is not needed. Raises InfraError if step pods still run after
    ``patience_s`` or the API server does not answer, ConfigError without the rights.
    """
    labels = f"{RUN}={run_id},{KIND}=shard,{PARENT}!={own},{COMPLETED}!=true"
    with cluster.client() as client:
        names = [item["metadata"]["name"] for item in list_objects(names_only(client), cluster, "workflows", labels)]
    for name in names:
        delete_object(cluster, "workflows", name, field="--workflow")
    if running := running_step_pods(cluster, run_id, patience_s, pause_s):
        raise InfraError(
            FailureClass.STEP_KILLED,
            f"an earlier Workflow of run {run_id} still runs, so units would run twice: pods {', '.join(running[:3])}",
        )
    return names
