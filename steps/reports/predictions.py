"""Predictions as swebench reads them."""

from __future__ import annotations

import json

from steps.contracts.data import Patch
from steps.reports.view import UnitView


def prediction(unit: UnitView, model: str) -> dict[str, str] | None:
    """The unit's prediction, or None where it has no patch. Undecodable bytes travel as lone surrogates (PEP 383)."""
    if unit.patch is None:
        return None
    return {
        "instance_id": unit.instance_id,
        "model_name_or_path": model,
        "model_patch": Patch(unit.patch).text,
    }


def predictions(units: list[UnitView], model: str) -> bytes:
    """JSON lines, ASCII only; no line for a unit without a patch, none for an empty one left out."""
    lines = [prediction(unit, model) for unit in units]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines if line is not None)
