"""The dataset's reference patch, for the page of a unit.

The answers are in the run's store, which agents cannot read but readers of a report can.
"""

from __future__ import annotations

import json

from swe_argo.steps.contracts.data import Patch


def reference_patch(answer: bytes | None) -> bytes:
    """Return the patch in ``answer.json``, from ``patch`` or ``source.patch``; empty if there is none."""
    try:
        read = json.loads(answer or b"{}")
        source = read.get("source")
        patch = read.get("patch") or (source.get("patch") if isinstance(source, dict) else None)
    except (ValueError, AttributeError, RecursionError):
        return b""
    return Patch.from_text(patch).data if isinstance(patch, str) else b""
