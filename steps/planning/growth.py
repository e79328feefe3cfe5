"""Growth of a run that is planned with more instances or attempts: it keeps its rows, or it is another run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from swe_argo.steps.agents import run_identity
from swe_argo.steps.contracts.data import Answer, DatasetLock, Plan, RunFile
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.datasets.names import list_first
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.rows import digest_rows
from swe_argo.steps.reports.text.formatting import count
from swe_argo.steps.store import Store

_SELECT = "select."
"""Fields that choose instances: they may change, because only the chosen rows are compared."""


def is_growth(name: str, old: Any, new: Any) -> bool:
    """Return whether a changed field can only make the run larger."""
    return name.startswith(_SELECT) or (name == "attempts" and new >= old)


def check_rows(before: RunFile, spec: RunSpec, lock: DatasetLock, rows: list[dict[str, Any]], store: Store) -> None:
    """Raise ConfigError if rows of run ``before`` are missing or changed; ``lock`` is of ``rows``. Or InfraError."""
    if before.dataset.sha256 == lock.sha256:
        return
    planned = planned_ids(before.run_id, store)
    by_id = {row["instance_id"]: row for row in rows}
    if planned is not None and (gone := [one for one in planned if one not in by_id]):
        raise ConfigError(
            f"run {before.run_id!r} has {count(len(gone), 'instance')} that {'is' if len(gone) == 1 else 'are'} not "
            f"selected now, {list_first(gone)}{_describe_selection(before.spec, spec)}: a run only grows; select them, "
            "too, or use another run id",
            field="select",
        )
    kept = [by_id[one] for one in planned or ()]
    if planned is not None and before.dataset.name == lock.name:
        if digest_rows(kept) == before.dataset.sha256 or not (changed := _changed(before.run_id, kept, store)):
            return
    else:
        changed = []
    names = f" ({list_first(changed)})" if changed else ""
    raise ConfigError(
        f"the rows of {lock.name} changed since run {before.run_id!r} began{names}; use another run id", field="dataset"
    )


def describe_growth(before: RunFile, spec: RunSpec, instances: int, store: Store) -> list[str]:
    """Return the growth of a run in a line; nothing if it did not grow."""
    old = len(planned_ids(before.run_id, store) or ())
    parts = [f"{old:,} -> {count(instances, 'instance')}"] if 0 < old < instances else []
    if before.spec.attempts < spec.attempts:
        parts.append(f"{before.spec.attempts} -> {count(spec.attempts, 'attempt')}")
    return [f"run {before.run_id} grows: {', '.join(parts)}; what it has is not done again"] if parts else []


def planned_ids(run_id: str, store: Store) -> list[str] | None:
    """Return the ids of a run's last plan; empty if it was never fully planned, None if the plan cannot be read."""
    data = store.get_many([name := key(Plan, run_id)]).get(name)
    if data is None:
        return []
    try:
        return list(dict.fromkeys(unit.instance_id for unit in Plan.from_bytes(data).units))
    except ValueError:  # from another version
        return None


def _changed(run_id: str, rows: Iterable[dict[str, Any]], store: Store) -> list[str]:
    """Return the ids of rows whose answer was made from another or an unknown row.

    If planning was killed while a run grew, its record has more rows than its plan.
    """
    names = {key(Answer, run_id, row["instance_id"]): row for row in rows}
    digests = {name: Answer.from_bytes(data).row_sha256 for name, data in store.get_many(names).items()}
    return [row["instance_id"] for name, row in names.items() if digests.get(name) != digest_rows([row])]


def _describe_selection(before: RunSpec, spec: RunSpec) -> str:
    """Return the fields of the selection that differ, as: " (select.k was 10, now 5)"."""
    old, new = run_identity.identity_fields(before), run_identity.identity_fields(spec)
    fields = [f"{n} was {old.get(n)!r}, now {new.get(n)!r}" for n in new if n[:7] == _SELECT and old.get(n) != new[n]]
    return f" ({', '.join(fields)})" if fields else ""
