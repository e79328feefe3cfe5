"""The patch that the dataset knows to be right, for the page of a unit.

What grading knows lies in the run's store, out of reach of agents; whoever reads a report can read that store.
"""

from __future__ import annotations

import json

from swe_argo.steps.contracts.data import Patch


def reference_patch(answer: bytes | None) -> bytes:
    """Of ``answer.json``: SWE-bench's has it as ``patch``, others in the row that they keep. Empty where none has."""
    try:
        read = json.loads(answer or b"{}")
        source = read.get("source")
        patch = read.get("patch") or (source.get("patch") if isinstance(source, dict) else None)
    except (ValueError, AttributeError, RecursionError):
        return b""
    return Patch.from_text(patch).data if isinstance(patch, str) else b""
