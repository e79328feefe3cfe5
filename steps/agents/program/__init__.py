"""Agent programs: run in the sandbox as they are."""

from __future__ import annotations

from steps.agents.task import Task
from steps.contracts.trajectory import StopReason
from steps.errors import ConfigError


def act(_task: Task) -> StopReason:
    """Raises ConfigError: their files are mounted, and nothing runs them yet."""
    raise ConfigError("agent programs are not run yet", field="agent.name")
