"""What an agent is to those who let it work: something that acts on a task, imported when it is to act."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from swe_argo.steps.agents.task import Task
from swe_argo.steps.contracts.agents import Agent, is_own
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.plugins import load_agent


class Runner(Protocol):
    """A module of ours is one, and so is what the class of an agent of one's own makes.

    Such a class is made without arguments. It may say ``asks_model = True``, ``calls_tools = True`` (of Agent), and
    ``defaults``, a dict of fields of AgentSpec that hold where a person says nothing.
    """

    def act(self, task: Task, /) -> StopReason:
        """Work on the issue until it ends; what was done is in ``task.journal``, the patch in ``task.box``.

        Raises what Sandbox and Model raise: InfraError, ResourceError, ConfigError.
        """


class CheckedRunner(Runner, Protocol):
    """One that may be unable to work here (``Agent.has_check``)."""

    def check(self) -> None:
        """Raises ConfigError where it cannot."""


def runner_of(agent: Agent) -> Runner:
    """What runs an agent that solves. Raises ConfigError where it is one's own and cannot be imported."""
    name = agent.runs or ""
    return cast("Runner", load_agent(name)() if is_own(name) else import_module(name))


def act(agent: Agent, task: Task) -> StopReason:
    """Let it work. Raises what it raises, and ConfigError where it does not say how it ended."""
    reason = runner_of(agent).act(task)
    if not isinstance(reason, StopReason):
        raise ConfigError(f"act of {agent.runs} returned {reason!r}, not a StopReason", field="agent.name")
    return reason


def check(agent: Agent) -> None:
    """Refuse an agent that cannot work here. Raises ConfigError."""
    if agent.has_check:
        cast("CheckedRunner", runner_of(agent)).check()
