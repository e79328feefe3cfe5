"""Writes the failures that Argo knows into the store, for units with neither verdict nor failure there."""

from __future__ import annotations

from swe_argo.steps.argo.node_failures import FailedShard, failed_shard, find_lost, find_unmade_shards
from swe_argo.steps.argo.nodes import UnitName
from swe_argo.steps.argo.shards import failed_shards, read_parent
from swe_argo.steps.argo.stored_units import StoredUnits, shard_units
from swe_argo.steps.contracts.failure import Failure, FailureClass
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.workflow_marks import SHARD
from swe_argo.steps.errors import StepError
from swe_argo.steps.kube.client import Cluster
from swe_argo.steps.kube.requests import Plain
from swe_argo.steps.store import Store


def explain(cluster: Cluster, store: Store, stored: StoredUnits, parent_name: str) -> list[StepError]:
    """Write a failure for each failed try without a record of its own, of units without verdict; update ``stored``.

    It is written under the name of the try's pod, where the try itself would have put it, so a second call writes
    nothing. A unit whose turn never came gets none. Returns the errors for single Workflows. Raises InfraError,
    ConfigError if nothing can be read.
    """
    books = _FailureRecords(store, stored)
    shards: set[str] = set()
    for workflow in failed_shards(cluster, stored.run_id, parent_name) if stored.open else ():
        shards.add(str(workflow["metadata"]["labels"].get(SHARD)))
        books.enter(workflow)
    if stored.open and (own := read_parent(cluster, parent_name)):
        books.enter_unmade(own, shards)
    return books.troubles


class _FailureRecords:
    def __init__(self, store: Store, stored: StoredUnits) -> None:
        self.store, self.stored = store, stored
        self.troubles: list[StepError] = []

    def enter(self, workflow: Plain) -> None:
        try:
            items = {(each.unit, each.name): each.failure for each in find_lost(workflow)}
            if shut := failed_shard(workflow):
                items |= self._all_of(shut)
        except StepError as error:
            self.troubles.append(error)
            return
        self._write(items)

    def enter_unmade(self, own: Plain, recorded_shards: set[str]) -> None:
        """Record the shards of the run's own Workflow that have no Workflow of their own."""
        try:
            for shut in find_unmade_shards(own):
                if shut.shard not in recorded_shards:
                    self._write(self._all_of(shut))
        except StepError as error:
            self.troubles.append(error)

    def _all_of(self, shut: FailedShard) -> dict[tuple[UnitName, str], Failure]:
        units = shard_units(self.store, self.stored.run_id, shut.workflow)
        planned_units = [(unit, self.stored.planned[unit]) for unit in units if unit in self.stored.planned]
        return {(of, shut.name): shut.failure(of, planned.begins) for of, planned in planned_units}

    def _write(self, items: dict[tuple[UnitName, str], Failure]) -> None:
        new = {
            what: failure
            for what, failure in items.items()
            if what[0] in self.stored.open
            # A step that gets SIGTERM cannot know the cause; its own record says that it was killed.
            and (what not in self.stored.failed or failure.failure_class is FailureClass.STOPPED)
        }
        self.store.put_many(
            {
                key(Failure, self.stored.run_id, of.instance_id, of.attempt, name): failure.to_bytes()
                for (of, name), failure in new.items()
            }
        )
        self.stored.failed |= new.keys()
