"""What an agent is handed: the issue, a machine with the repository, a model to ask, and a journal to write."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from swe_argo.steps.agents.journal import Journal
from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.data import Instance
from swe_argo.steps.contracts.recipe import AgentProgram
from swe_argo.steps.contracts.recording import Recording
from swe_argo.steps.contracts.trajectory import Usage
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.models.reply import Model
from swe_argo.steps.sandbox.protocol import Sandbox

if TYPE_CHECKING:
    from swe_argo.steps.models.program_answers import Forwarded


def issue_with_hints(instance: Instance) -> str:
    """The issue, with --hints its discussion behind it: for prompts that have no place of their own for that."""
    hints, text = instance.hints_text, instance.problem_statement
    return f"{text}\n\nWhat was said about it:\n\n{hints}" if hints else text


class Forwards(Protocol):
    """Answers an agent program's requests; ``swe_argo.steps.models.forwarding.Forwarder`` documents each method."""

    @property
    def model(self) -> str: ...  # noqa: D102

    @property
    def usage(self) -> Usage: ...  # noqa: D102

    @property
    def lost_s(self) -> float: ...  # noqa: D102

    def answer(  # noqa: D102
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, timeout_s: float | None = None
    ) -> Forwarded: ...

    def refuse(self, path: str, why: str) -> Forwarded: ...  # noqa: D102


class NoModel:
    """What an agent is handed that says it asks no model."""

    name = ""
    usage = Usage()
    lost_s = 0.0

    def ask(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Raises ConfigError."""
        raise ConfigError("this agent asked a model, and does not say that it does: asks_model", field="agent.name")


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
    """``NoModel`` where the agent asks none."""
    instruction: str
    """Text of the prompt template, not rendered yet."""
    fn_calling: bool
    temperature: float | None = None
    words: str = ""
    """Text of the file with the scaffold's words; empty where they are its own."""
    recording: Recording | None = None
    """What is to be performed again, for what replays."""
    patch: bytes | None = None
    """What an agent answered, where a patch is its answer: graded as it is, instead of what changed in ``box``."""
    program: AgentProgram | None = None
    """The agent program that is to run, and what answers its requests; ``model`` is NoModel then."""
    forwarder: Forwards | None = None

    clock: Callable[[], float] = time.monotonic
    """Seconds by which its time is counted."""

    @property
    def issue(self) -> str:
        """See ``issue_with_hints``."""
        return issue_with_hints(self.instance)
