"""The trajectory formats of other projects: whose actions they are, by which model, what was done, how it ended.

One module a format, which reads its rows tolerantly and writes what its own project's tools read.
"""

from __future__ import annotations

from swe_argo.steps.agents.formats import atif, mini_swe_agent, openhands, preds, r2egym, sweagent
from swe_argo.steps.agents.formats.recording import Recorded, Row

__all__ = ["Recorded", "Row", "read_row"]

_FORMATS = (atif, r2egym, sweagent, openhands, mini_swe_agent, preds)


def read_row(row: Row) -> Recorded | None:
    """The row in whichever format it is, or None where it is no trajectory. Raises ValueError saying what is wrong."""
    return next((form.read(row) for form in _FORMATS if form.is_row(row)), None)
