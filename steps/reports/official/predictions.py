"""Predictions file in swebench's format."""

from __future__ import annotations

import json

from swe_argo.steps.contracts.data import Patch
from swe_argo.steps.reports.stored_run import StoredUnit


def predictions(units: list[StoredUnit], model: str) -> bytes:
    """Return JSON lines, ASCII only, one for each unit with a patch, even an empty one.

    Bytes of a patch that are not UTF-8 become lone surrogates (PEP 383).
    """
    lines = [
        {"instance_id": unit.instance_id, "model_name_or_path": model, "model_patch": Patch(unit.patch).text}
        for unit in units
        if unit.patch is not None
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
