"""The units of a run according to its store: planned, with a verdict, and failed tries."""

from __future__ import annotations

from dataclasses import dataclass, field

from swe_argo.steps.argo.nodes import UnitName
from swe_argo.steps.contracts.data import Plan, RunFile, Unit
from swe_argo.steps.contracts.failure import Failure
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.shard import Shard
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.store import Store


@dataclass
class StoredUnits:
    """The state of a run's units, known from the plan and the names of the stored files."""

    run_id: str
    planned: dict[UnitName, Unit]
    graded: set[UnitName] = field(default_factory=set)
    failed_tries: set[tuple[UnitName, str]] = field(default_factory=set)
    """Tries with a stored failure: (unit, name of the try)."""

    @property
    def open(self) -> set[UnitName]:
        """The planned units without a verdict."""
        return self.planned.keys() - self.graded


def read_stored_units(store: Store, run_id: str) -> StoredUnits | None:
    """Read a run's units; None if the store has no such run. A run without a plan has no units.

    Raises ConfigError for an unreadable plan, InfraError if the store fails.
    """
    names = (key(RunFile, run_id), key(Plan, run_id))
    files = store.get_many(names)
    if names[0] not in files:
        return None
    units = []
    if names[1] in files:
        try:
            units = Plan.from_bytes(files[names[1]]).units
        except ValueError as error:
            raise ConfigError(f"{store.locate(names[1])} cannot be read: {error}", field="run") from error
    stored = StoredUnits(run_id, {UnitName(unit.instance_id, unit.attempt): unit for unit in units})
    prefix = f"runs/{run_id}/units/"
    for name in store.keys(prefix) if units else []:
        # <instance>/<attempt>/<file>; the padding keeps other keys from failing here.
        instance, attempt, file = (*name.removeprefix(prefix).split("/", 2), "", "")[:3]
        unit_name = UnitName(instance, int(attempt)) if attempt.isdigit() else None
        if unit_name in stored.planned:
            _add_file(stored, unit_name, file)
    return stored


def _add_file(stored: StoredUnits, unit_name: UnitName, file: str) -> None:
    """Add what the existence of a unit's file says: grade.json is a verdict, tries/<try>/failure.json a failed try."""
    if file == GradeRecord.file:
        stored.graded.add(unit_name)
    elif file.startswith("tries/") and file.endswith(f"/{Failure.file}"):
        stored.failed_tries.add((unit_name, file.split("/")[1]))


def shard_units(store: Store, run_id: str, workflow: str) -> list[UnitName]:
    """Return the units of a shard, from the stored list under the name of its Workflow.

    Raises ConfigError if its list is missing or malformed, InfraError if the store fails.
    """
    name = key(Shard, run_id, name=workflow)
    try:
        return [UnitName(unit.id, unit.attempt) for unit in Shard(store.get(name)).units]
    except (FileNotFoundError, ValueError) as error:
        raise ConfigError(f"{store.locate(name)} cannot be read: {error}", field="run") from error
