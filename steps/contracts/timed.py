"""When a step worked, in the record that it leaves of a unit."""

from __future__ import annotations

from swe_argo.steps.contracts.record import Record


class Timed(Record):
    """A record of a try that succeeded. The step's entry says when that was: both empty where no such program made it,
    or one from before there were these fields."""

    began_at: str = ""
    """ISO 8601, UTC."""
    ended_at: str = ""
