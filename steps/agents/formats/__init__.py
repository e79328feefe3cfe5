"""Trajectory formats of other projects: agent, model, actions and end of a run.

Each format has a module that reads its rows tolerantly and writes files for its own project's tools.
"""

from __future__ import annotations

from swe_argo.steps.agents.formats import atif, mini_swe_agent, openhands, preds, r2egym, sweagent
from swe_argo.steps.agents.formats.recording import ParsedTrajectory, Row

__all__ = ["ParsedTrajectory", "Row", "read_row"]

_FORMATS = (atif, r2egym, sweagent, openhands, mini_swe_agent, preds)


def read_row(row: Row) -> ParsedTrajectory | None:
    """Return the row in its format, None if it is no trajectory. Raises ValueError with the fault."""
    return next((form.read(row) for form in _FORMATS if form.is_row(row)), None)
