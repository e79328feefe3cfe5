"""What earlier Workflows of a run left at work -> ended, before the run is planned anew.

``argo terminate`` ends a run's Workflow and none of its shards: they would do the same units beside the new ones.
"""

from __future__ import annotations

from swe_argo.steps.argo.shards import delete_object, list_objects, names_only
from swe_argo.steps.argo.step_pods import running_step_pods
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.workflow_marks import COMPLETED, KIND, PARENT, RUN
from swe_argo.steps.errors import InfraError
from swe_argo.steps.kube.client import Cluster

PODS_S = 180.0
"""Seconds for the pods of deleted shards: 30 to put a sandbox away, the rest for a busy cluster to get to it."""


def remove_earlier_shards(
    cluster: Cluster, run_id: str, own: str, *, patience_s: float = PODS_S, pause_s: float = 1.0
) -> list[str]:
    """Delete the shards at work that are not of the Workflow ``own``; their names. Nothing of the run works then.

    Deleted and not stopped: of what is gone Argo gives up all places of the semaphores (see locks), and nobody asks any
    more how it ended. Raises InfraError where pods run on after ``patience_s``, ConfigError without the rights.
    """
    labels = f"{RUN}={run_id},{KIND}=shard,{PARENT}!={own},{COMPLETED}!=true"
    with cluster.client() as client:
        names = [each["metadata"]["name"] for each in list_objects(names_only(client), cluster, "workflows", labels)]
    for name in names:
        delete_object(cluster, "workflows", name, field="--workflow")
    if running := running_step_pods(cluster, run_id, patience_s, pause_s):
        raise InfraError(
            FailureClass.STEP_KILLED,
            f"an earlier Workflow of run {run_id} works on, and units would run twice: pods {', '.join(running[:3])}",
        )
    return names
