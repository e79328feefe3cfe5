"""What an agent is handed: the issue, a machine with the repository, a model to ask, and a journal to write."""

from __future__ import annotations

from dataclasses import dataclass

from steps.agents.journal import Journal
from steps.contracts.data import Instance
from steps.contracts.run import AgentSpec
from steps.models.reply import Model
from steps.sandbox.protocol import Sandbox


@dataclass
class Task:
    """One attempt at one issue. An agent is ``act(task) -> StopReason``; what it did is in ``journal`` afterwards.

    ``act`` raises what Sandbox and Model raise (InfraError, ResourceError, ConfigError), never NoReplyError.
    """

    instance: Instance
    spec: AgentSpec
    box: Sandbox
    journal: Journal
    model: Model
    instruction: str
    """Text of the prompt template, not rendered yet."""
    fn_calling: bool
    temperature: float | None = None
