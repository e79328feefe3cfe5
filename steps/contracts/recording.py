"""Recordings: actions for agent ``replay``, and the comparison of a replay with its recording."""

from __future__ import annotations

from typing import Any, ClassVar

from swe_argo.steps.contracts.record import AnyText, Part, Place, Record
from swe_argo.steps.contracts.trajectory import StopReason


class Action(Part):
    """A recorded tool call, with its observation if that was recorded."""

    tool: str
    arguments: dict[str, Any]
    observation: AnyText | None = None


class Recording(Record):
    """Actions to replay, which plan reads from any supported format and writes for agent ``replay``."""

    file: ClassVar[str] = "recording.json"
    place: ClassVar[Place] = Place.UNIT
    source: str
    scaffold: str | None = None
    """The scaffold whose tools were used, if it is one of ours: its observations can be compared exactly."""
    actions: list[Action]
    patch: AnyText | None = None
    """The recorded patch, if any."""
    stop_reason: StopReason | None = None
    """The recorded stop reason, if any."""


class Replayed(Part):
    """The comparison of a replay with its recording."""

    observations: int
    """Recorded observations that could be compared."""
    differing: list[int] = []
    """Numbers, from 1, of the actions with different observations."""
    same_patch: bool | None = None
    """None if the recording has no patch."""
