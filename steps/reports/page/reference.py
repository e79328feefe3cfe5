"""The dataset's reference patch, for the page of a unit.

The answers are in the run's store, out of reach of agents; readers of a report can read that store, too.
"""

from __future__ import annotations

import json

from swe_argo.steps.contracts.data import Patch


def reference_patch(answer: bytes | None) -> bytes:
    """Return the patch in ``answer.json`` (SWE-bench: ``patch``, others: in their row); empty if there is none."""
    try:
        read = json.loads(answer or b"{}")
        source = read.get("source")
        patch = read.get("patch") or (source.get("patch") if isinstance(source, dict) else None)
    except (ValueError, AttributeError, RecursionError):
        return b""
    return Patch.from_text(patch).data if isinstance(patch, str) else b""
