"""Times of a step in its record of a unit."""

from __future__ import annotations

from swe_argo.steps.contracts.record import Record


class Timed(Record):
    """A record of a successful try, with its times.

    Both are empty in records of older releases and in those that no step program wrote.
    """

    began_at: str = ""
    """ISO 8601, UTC."""
    ended_at: str = ""
