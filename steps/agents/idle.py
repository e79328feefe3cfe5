"""The agent that does nothing: the negative control of every evaluation."""

from __future__ import annotations

from steps.contracts.trajectory import StopReason


def act() -> StopReason:
    """Leave the repository as it is."""
    return StopReason.FINISHED
