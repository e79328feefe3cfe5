"""Tokens and cost of failed tries that no record of the unit contains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from swe_argo.steps.contracts.kept_calls import FOLDER as CALLS
from swe_argo.steps.contracts.kept_calls import spent_by
from swe_argo.steps.contracts.redone import is_kept
from swe_argo.steps.contracts.trajectory import Trajectory, spent_in
from swe_argo.steps.reports.batches import TRAJECTORIES_AT_ONCE, batches
from swe_argo.steps.reports.stored_run import StoredUnit
from swe_argo.steps.store import Store
from swe_argo.steps.store.kept_calls import read_answered

Files = Mapping[tuple[str, int], list[str]]
"""(instance, attempt) -> names of the files in the unit's folder."""


def add_lost_usage(store: Store, run_id: str, units: list[StoredUnit], files: Files, *, running: str = "") -> None:
    """Add the usage of failed tries to known tries, and else to ``unexplained`` of their units.

    ``running``: location of the recorded calls of a try in progress, which is not lost. Raises InfraError if the store
    fails.
    """
    _add_from_trajectories(store, run_id, units, files)
    for unit in units:
        names = files.get((unit.instance_id, unit.attempt), [])
        own = unit.solve.kept_calls if unit.solve else running
        _add_from_answered_calls(store, f"runs/{run_id}/units/{unit.instance_id}/{unit.attempt}/", unit, names, own)


def _add_from_trajectories(store: Store, run_id: str, units: list[StoredUnit], files: Files) -> None:
    unread = [
        (unit, f"runs/{run_id}/units/{unit.instance_id}/{unit.attempt}/{name}", name.split("/")[1])
        for unit in units
        for name in files.get((unit.instance_id, unit.attempt), [])
        if name.startswith("tries/") and name.endswith(f"/{Trajectory.file}")
        if not _has_usage(unit, name) and not is_kept(name)
    ]
    for some in batches(unread, TRAJECTORIES_AT_ONCE):
        contents = store.get_many(place for _, place, _ in some)
        for unit, place, name in some:
            usage = spent_in(contents.get(place))
            if not any(failed_try.name == name for failed_try in unit.tries):
                unit.unexplained += usage
            unit.tries = [
                replace(failed_try, usage=usage) if failed_try.name == name else failed_try for failed_try in unit.tries
            ]


def _add_from_answered_calls(store: Store, folder: str, unit: StoredUnit, names: list[str], own: str | None) -> None:
    """Add the usage of tries that were killed before they left anything but recorded calls."""
    unsaid = [
        folder + name
        for name in names
        if f"/{CALLS}/" in name and not (own and name.startswith(f"{own}."))
        if not _has_usage(unit, name) and f"tries/{name.split('/')[1]}/{Trajectory.file}" not in names
    ]
    for (_, writer), calls in read_answered(store, unsaid).items() if unsaid else ():
        unit.unexplained += spent_by(writer, calls)


def _has_usage(unit: StoredUnit, name: str) -> bool:
    return any(failed_try.name == name.split("/")[1] and failed_try.usage.requests for failed_try in unit.tries)
