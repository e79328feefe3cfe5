"""Recording: actions that agent ``replay`` performs again, and whether they came out the same."""

from __future__ import annotations

from typing import Any, ClassVar

from swe_argo.steps.contracts.record import AnyText, Part, Place, Record
from swe_argo.steps.contracts.trajectory import StopReason


class Action(Part):
    """A recorded call of a tool, and what was observed then where the recording tells."""

    tool: str
    arguments: dict[str, Any]
    observation: AnyText | None = None


class Recording(Record):
    """Actions to perform again, written by plan for agent ``replay`` from whatever format they were recorded in."""

    file: ClassVar[str] = "recording.json"
    place: ClassVar[Place] = Place.UNIT
    source: str
    scaffold: str | None = None
    """Whose tools they are, where it is one of ours: its observations can be compared word by word."""
    actions: list[Action]
    patch: AnyText | None = None
    """What it came to, where the recording tells."""
    stop_reason: StopReason | None = None
    """Why it stopped then, where the recording tells."""


class Replayed(Part):
    """Whether a replay came out as its recording."""

    observations: int
    """Recorded observations that could be compared."""
    differing: list[int] = []
    """The actions, from 1, that were observed otherwise."""
    same_patch: bool | None = None
    """None where the recording has no patch."""
