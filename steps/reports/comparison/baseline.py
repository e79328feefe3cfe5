"""Choice of the run to compare with: a named run, or the last finished run of the same spec."""

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
    began = _parse_time(run.created_at)
    earlier = [
        candidate
        for candidate in map(_parse_run, stored.values())
        if candidate is not None and _parse_time(candidate.created_at) < began and is_same_spec(candidate, run)
    ]
    for candidate in sorted(
        earlier, key=lambda candidate: (_parse_time(candidate.created_at), candidate.run_id), reverse=True
    ):
        if _is_complete(store, candidate.run_id):
            return candidate.run_id
    return None


def _parse_run(data: bytes) -> RunFile | None:
    try:
        return RunFile.from_bytes(data)
    except ValueError:  # from another version, or truncated: not a run to compare with
        return None


def _is_complete(store: Store, run_id: str) -> bool:
    # Not parsed as a Summary: that of an older version may lack a field.
    try:
        return json.loads(store.get(key(Summary, run_id))).get("complete") is True
    except (FileNotFoundError, ValueError, AttributeError):
        return False


def _parse_time(stamp: str) -> datetime:
    """Return a time in UTC unless it names a zone; the latest possible time if it cannot be parsed."""
    try:
        time = datetime.fromisoformat(stamp)
    except ValueError:
        return datetime.max.replace(tzinfo=UTC)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
