"""Agent that does nothing: the negative control of every evaluation."""

from __future__ import annotations

from swe_argo.steps.agents.task import Task
from swe_argo.steps.contracts.trajectory import StopReason


def act(_task: Task) -> StopReason:
    """Finish at once without any change."""
    return StopReason.FINISHED
