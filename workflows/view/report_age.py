"""Whether a report is older than its run: a run that grows on a cluster keeps its last report until the next."""

from __future__ import annotations

import json


def again_s(*, working: bool) -> int:
    """Seconds until a page is read again: later where nobody is known to work on it, for it may have ended for good."""
    return 2 if working else 10


def count_planned(plan: bytes) -> int:
    """The units of a plan.json; 0 where it cannot be read."""
    try:
        return len(json.loads(plan)["units"])
    except (ValueError, KeyError, TypeError):
        return 0


def count_reported(summary: bytes) -> int:
    """The units that a summary.json is of; 0 where it cannot be read."""
    try:
        return sum(int(number) for number in json.loads(summary)["outcomes"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        return 0
