"""What is kept of a unit's verdict when a person has the unit done again (--redo)."""

from __future__ import annotations

from typing import ClassVar

from steps.contracts.record import Place, Record
from steps.contracts.trajectory import StopReason, Usage
from steps.contracts.verdict import Outcome


class Redone(Record):
    """An earlier verdict. Its files lie beside it, under the names that they had."""

    file: ClassVar[str] = "redone.json"
    place: ClassVar[Place] = Place.TRY
    instance_id: str
    attempt: int
    outcome: Outcome
    stop_reason: StopReason | None
    """None where nobody solved."""
    requested: str
    """What chose it: an outcome, a stop reason, or the instance itself."""
    at: str
    """When it was put away; ISO 8601, UTC."""
    usage: Usage = Usage()
    """What its solve had taken of the model, where that is done again, too."""
    seconds: float = 0.0
    """In the stages that are done again."""
