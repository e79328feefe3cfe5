"""Release of semaphore holds that stay taken after a shard has ended: the run's Workflow takes them over.

Argo 4.1 releases only every other hold of a Workflow when it ends: it shortens the list that it iterates over
(workflow/sync/sync_manager.go, ReleaseAll; SemaphoreStatus.LockReleased), and the rest stays taken until the controller
restarts. A stopped shard ends in the midst of its units, and one whose last units fail together may. Lists of one
holder each are iterated completely: in that form the run's own Workflow takes the holds, and it ends next.
"""

from __future__ import annotations

from swe_argo.steps.argo.nodes import nodes, template
from swe_argo.steps.argo.shards import change_workflow, failed_shards
from swe_argo.steps.kube.client import Cluster
from swe_argo.steps.kube.requests import Plain, moment

LOCK = "ConfigMap/swe-argo-limits/units"
UNIT = "unit"
"""Template that holds the semaphore."""
LAST_S = 60.0
"""Units that ended these seconds before their shard have released their holds, one poll of Argo's later."""


def hand_over(cluster: Cluster, run_id: str, parent_name: str) -> list[str]:
    """Transfer possible leftover holds of the run's ended shards to the run's Workflow; return those shards' names.

    Releasing a hold that nobody has is harmless. Raises InfraError, ConfigError as stop_shards() does.
    """
    lock_nodes = {
        str(each["metadata"]["name"]): nodes_with_locks(each) for each in failed_shards(cluster, run_id, parent_name)
    }
    keys = [f"{cluster.namespace}/{name}/{node}" for name, ids in lock_nodes.items() for node in ids]
    if not keys:
        return []
    lock = f"{cluster.namespace}/{LOCK}"
    holding = {"holding": [{"semaphore": lock, "holders": [each]} for each in keys]}
    how = {"status": {"synchronization": {"semaphore": holding}}}
    change_workflow(cluster, parent_name, how, f"handing places over to Workflow {parent_name}")
    return [name for name, ids in lock_nodes.items() if ids]


def nodes_with_locks(workflow: Plain) -> list[str]:
    """Return the ids of units that may still have a hold: those that did not end long before their shard."""
    over = moment((workflow.get("status") or {}).get("finishedAt"))
    units = [each for each in nodes(workflow).values() if template(each) == UNIT]
    return [
        str(each["id"])
        for each in units
        if over and ((finished := moment(each.get("finishedAt"))) is None or over - finished < LAST_S)
    ]
