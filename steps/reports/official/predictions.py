"""Predictions as swebench reads them."""

from __future__ import annotations

import json

from swe_argo.steps.contracts.data import Patch
from swe_argo.steps.reports.stored_run import StoredUnit


def predictions(units: list[StoredUnit], model: str) -> bytes:
    """JSON lines, ASCII only: one for each unit that has a patch, also where that is empty.

    Bytes of a patch that are no UTF-8 travel as lone surrogates (PEP 383).
    """
    lines = [
        {"instance_id": unit.instance_id, "model_name_or_path": model, "model_patch": Patch(unit.patch).text}
        for unit in units
        if unit.patch is not None
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
