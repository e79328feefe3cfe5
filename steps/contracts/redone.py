"""What is kept of a unit's verdict when a person has the unit done again (--redo).

A verdict is put away in this order, and whoever is killed in between leaves what can be told apart:

1. Its files are copied into the folder that is named by its content: nothing has changed.
2. ``redone.json`` is put beside them: from here on the next plan finishes it, whatever that one is asked for. Until
   then the verdict stands as long as ``grade.json`` is there, and its folder is no earlier verdict yet.
3. The run's ``summary.json`` goes, which would tell of the old verdict, then the unit's files, ``grade.json`` last.
"""

from __future__ import annotations

import hashlib
from typing import ClassVar

from swe_argo.steps.contracts.record import Place, Record
from swe_argo.steps.contracts.trajectory import StopReason, Usage
from swe_argo.steps.contracts.verdict import Outcome

_FOLDER = "redone-"
RETRACTED = "retracted-"
"""How the tries are called that were solved until the model's endpoint proved to have ended them."""


def kept_as(verdict: bytes) -> str:
    """Name among a unit's tries under which the verdict of these bytes is kept: done again, it is kept once."""
    return f"{_FOLDER}{hashlib.sha256(verdict).hexdigest()[:12]}"


def is_kept(name: str) -> bool:
    """Whether a file of a unit, by its name in the unit's folder, is of a verdict that was put away, or is to be."""
    return name.startswith(f"tries/{_FOLDER}")


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
