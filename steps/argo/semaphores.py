"""Release of semaphore holds that stay taken after a shard has ended: the run's Workflow takes them over.

Argo 4.1 releases only every other hold of a Workflow when it ends: it shortens the list that it iterates over
(workflow/sync/sync_manager.go, ReleaseAll; SemaphoreStatus.LockReleased), and the rest stays taken until the controller
restarts. This happens to a stopped shard, and to a shard whose last units fail together. Lists of one holder each are
iterated completely: in that form the run's own Workflow takes the holds over, and it ends next.
"""

from __future__ import annotations

from swe_argo.steps.argo.nodes import nodes, template
from swe_argo.steps.argo.shards import change_workflow, failed_shards
from swe_argo.steps.kube.client import Cluster
from swe_argo.steps.kube.requests import Plain, parse_time

LOCK = "ConfigMap/swe-argo-limits/units"
"""The semaphore that limits running units, by its name in a Workflow's status without the namespace."""
UNIT_TEMPLATE = "unit"
"""Template that holds the semaphore."""
RELEASE_S = 60.0
"""Units that ended these seconds before their shard have released their holds, one poll of Argo's later."""


def move_holds_to_parent(cluster: Cluster, run_id: str, parent_name: str) -> list[str]:
    """Transfer possible leftover holds of the run's ended shards to the run's Workflow; return those shards' names.

    Releasing a hold that does not exist has no effect. Raises InfraError if the API server does not answer, ConfigError
    without the rights.
    """
    lock_nodes = {
        str(shard["metadata"]["name"]): nodes_with_locks(shard) for shard in failed_shards(cluster, run_id, parent_name)
    }
    keys = [f"{cluster.namespace}/{name}/{node}" for name, ids in lock_nodes.items() for node in ids]
    if not keys:
        return []
    lock = f"{cluster.namespace}/{LOCK}"
    holding = {"holding": [{"semaphore": lock, "holders": [shard]} for shard in keys]}
    patch = {"status": {"synchronization": {"semaphore": holding}}}
    change_workflow(cluster, parent_name, patch, f"handing places over to Workflow {parent_name}")
    return [name for name, ids in lock_nodes.items() if ids]


def nodes_with_locks(workflow: Plain) -> list[str]:
    """Return the ids of unit nodes that may still have a hold: those that did not end LAST_S before their shard."""
    finished_at = parse_time((workflow.get("status") or {}).get("finishedAt"))
    units = [node for node in nodes(workflow).values() if template(node) == UNIT_TEMPLATE]
    return [
        str(node["id"])
        for node in units
        if finished_at
        and ((finished := parse_time(node.get("finishedAt"))) is None or finished_at - finished < RELEASE_S)
    ]
