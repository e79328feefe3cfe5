"""Tokens and cost of failed tries that no record of the unit contains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from swe_argo.steps.contracts.recorded_calls import FOLDER as CALLS
from swe_argo.steps.contracts.recorded_calls import usage_of_try
from swe_argo.steps.contracts.redone import is_archived
from swe_argo.steps.contracts.trajectory import Trajectory, usage_of_trajectory
from swe_argo.steps.reports.batches import TRAJECTORIES_AT_ONCE, batches
from swe_argo.steps.reports.stored_run import StoredUnit
from swe_argo.steps.store import Store
from swe_argo.steps.store.recorded_calls import read_answered

Files = Mapping[tuple[str, int], list[str]]
"""(instance, attempt) -> names of the files in the unit's folder."""


def add_lost_usage(store: Store, run_id: str, units: list[StoredUnit], files: Files, *, running: str = "") -> None:
    """Add the usage of failed tries to the units' known tries, or else to the units' ``unrecorded_usage`` usage.

    ``running``: location of the recorded calls of a try in progress, which is not lost. Raises InfraError if the store
    fails.
    """
    _add_from_trajectories(store, run_id, units, files)
    for unit in units:
        names = files.get((unit.instance_id, unit.attempt), [])
        own = unit.solve.kept_calls if unit.solve else running
        _add_from_answered_calls(store, f"runs/{run_id}/units/{unit.instance_id}/{unit.attempt}/", unit, names, own)


def _add_from_trajectories(store: Store, run_id: str, units: list[StoredUnit], files: Files) -> None:
    """Add the usage in trajectories of failed tries whose failure records none."""
    unread = [
        (unit, f"runs/{run_id}/units/{unit.instance_id}/{unit.attempt}/{name}", name.split("/")[1])
        for unit in units
        for name in files.get((unit.instance_id, unit.attempt), [])
        if name.startswith("tries/") and name.endswith(f"/{Trajectory.file}")
        if not _has_usage(unit, name) and not is_archived(name)
    ]
    for batch in batches(unread, TRAJECTORIES_AT_ONCE):
        contents = store.get_many(place for _, place, _ in batch)
        for unit, place, name in batch:
            usage = usage_of_trajectory(contents.get(place))
            if not any(failed_try.name == name for failed_try in unit.tries):
                unit.unrecorded_usage += usage
            unit.tries = [
                replace(failed_try, usage=usage) if failed_try.name == name else failed_try for failed_try in unit.tries
            ]


def _add_from_answered_calls(store: Store, folder: str, unit: StoredUnit, names: list[str], own: str | None) -> None:
    """Add the usage of killed tries that wrote nothing but recorded calls.

    ``own``: location of the recorded calls that the unit's own record counts, or of a try in progress; None if there is
    none.
    """
    unrecorded = [
        folder + name
        for name in names
        if f"/{CALLS}/" in name and not (own and name.startswith(f"{own}."))
        if not _has_usage(unit, name) and f"tries/{name.split('/')[1]}/{Trajectory.file}" not in names
    ]
    for (_, writer), calls in read_answered(store, unrecorded).items() if unrecorded else ():
        unit.unrecorded_usage += usage_of_try(writer, calls)


def _has_usage(unit: StoredUnit, name: str) -> bool:
    """Return whether the failed try that a file (``tries/TRY/...``) belongs to has recorded its usage."""
    return any(failed_try.name == name.split("/")[1] and failed_try.usage.requests for failed_try in unit.tries)
