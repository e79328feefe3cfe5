"""Start and end of a unit's tries, as far as its records contain them."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from swe_argo.steps.contracts.failure import Failure
from swe_argo.steps.reports.stored_run import StoredUnit


def try_times(unit: StoredUnit) -> list[dict[str, Any]]:
    """Return failed tries, then successful ones: step, began_at and ended_at (ISO 8601, UTC), failure_class or None.

    Excludes tries without times, and tries of verdicts that --redo archived.
    """
    failed = [times for failed_try in unit.tries if (times := _failed(failed_try.failure)) is not None]
    successful = [
        {"step": step, "began_at": record.began_at, "ended_at": record.ended_at, "failure_class": None}
        for step, record in (("solve", unit.solve), ("grade", unit.grade))
        if record is not None and record.began_at
    ]
    return [*failed, *successful]


def _failed(failure: Failure) -> dict[str, Any] | None:
    """Return the times of a failed try, or None if its end cannot be parsed. A failure records its end and duration."""
    with suppress(ValueError, OverflowError):
        ended = datetime.fromisoformat(failure.occurred_at)
        return {
            "step": failure.step,
            "began_at": (ended - timedelta(seconds=failure.seconds)).isoformat(timespec="milliseconds"),
            "ended_at": failure.occurred_at,
            "failure_class": failure.failure_class.value,
        }
    return None
