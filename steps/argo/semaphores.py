"""Places of the units' semaphore that stay taken when a shard is over -> handed to its run, which gives them up.

Argo 4.1 gives up only every other place that a Workflow holds when it ends: it shortens the list that it walks through
(workflow/sync/sync_manager.go, ReleaseAll; SemaphoreStatus.LockReleased), and what stays taken is so until the
controller starts anew. A shard that is stopped ends in the midst of its units, and one whose last units fail together
may. Lists of one holder each are walked through whole: as such the run's own Workflow takes them, and it ends next.
"""

from __future__ import annotations

from swe_argo.steps.argo.nodes import nodes, template
from swe_argo.steps.argo.shards import change_workflow, failed_shards
from swe_argo.steps.kube.client import Cluster
from swe_argo.steps.kube.requests import Plain, moment

LOCK = "ConfigMap/swe-argo-limits/units"
UNIT = "unit"
"""Template that holds a place."""
LAST_S = 60.0
"""Units that ended so long before their shard have given up their places themselves, one look of Argo's later."""


def hand_over(cluster: Cluster, run_id: str, parent_name: str) -> list[str]:
    """Let the run's Workflow hold what its shards, which have ended, may have kept; the names of those shards.

    A place that nobody holds is given up without effect. Raises InfraError, ConfigError as children.stop() does.
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
    """Ids of the units that may hold a place of their shard's still: those that had not ended much before it."""
    over = moment((workflow.get("status") or {}).get("finishedAt"))
    units = [each for each in nodes(workflow).values() if template(each) == UNIT]
    return [
        str(each["id"])
        for each in units
        if over and ((finished := moment(each.get("finishedAt"))) is None or over - finished < LAST_S)
    ]
