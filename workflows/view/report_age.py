"""Detection of outdated reports: a growing run on a cluster keeps its last report until the next one."""

from __future__ import annotations

import json


def refresh_s(*, working: bool) -> int:
    """Return the seconds until a page is refreshed; longer without a known runner, as the run may have ended."""
    return 2 if working else 10


def count_planned(plan: bytes) -> int:
    """Return the number of units in a plan.json; 0 if it cannot be read."""
    try:
        return len(json.loads(plan)["units"])
    except (ValueError, KeyError, TypeError):
        return 0


def count_reported(summary: bytes) -> int:
    """Return the number of units in a summary.json; 0 if it cannot be read."""
    try:
        return sum(int(number) for number in json.loads(summary)["outcomes"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        return 0
