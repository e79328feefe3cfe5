"""Choice of the run to compare with: a named one, or the last finished one of the same spec."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.record import key
from swe_argo.steps.reports.comparison.changes import is_same_spec
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.store import Store

LAST = "last"


def last_of_same_spec(store: Store, run: RunFile) -> str | None:
    """Return the id of the newest finished run of the same spec that was planned before this one.

    A run is finished if it has a report and every unit has a verdict. Raises InfraError if the store fails.
    """
    names = [name for name in store.folders("runs/") if name != run.run_id]
    stored = store.get_many(key(RunFile, name) for name in names)
    began = _time(run.created_at)
    earlier = [
        other
        for other in map(_run, stored.values())
        if other is not None and _time(other.created_at) < began and is_same_spec(other, run)
    ]
    for other in sorted(earlier, key=lambda other: (_time(other.created_at), other.run_id), reverse=True):
        if _complete(store, other.run_id):
            return other.run_id
    return None


def _run(data: bytes) -> RunFile | None:
    try:
        return RunFile.from_bytes(data)
    except ValueError:  # from another version, or truncated: not a run to compare with
        return None


def _complete(store: Store, run_id: str) -> bool:
    # Not parsed as a Summary: a summary of an older version may lack a field and still be complete.
    try:
        return json.loads(store.get(key(Summary, run_id))).get("complete") is True
    except (FileNotFoundError, ValueError, AttributeError):
        return False


def _time(stamp: str) -> datetime:
    try:
        when = datetime.fromisoformat(stamp)
    except ValueError:
        return datetime.max.replace(tzinfo=UTC)
    return when if when.tzinfo else when.replace(tzinfo=UTC)
