"""Model access of an agent: recorded answers of an earlier try first, then the endpoint.

Modules that only some agents need are imported on demand.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from swe_argo.steps.agents.resume import AgentClock, AttemptCalls, ContinuedModel, SolveCalls
from swe_argo.steps.agents.task import Forwards, NoModel
from swe_argo.steps.contracts.agents import Agent
from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.models.reply import Model


def find_endpoint(run: RunFile) -> str:
    """Return the endpoint's URL without secrets. Raises ConfigError if no endpoint is configured."""
    from swe_argo.steps.models.endpoint import resolve_endpoint

    return resolve_endpoint(run.spec).display_url


def calls_of_attempt(solve: SolveCalls, agent: Agent, number: int, clock: AgentClock, workdir: str) -> AttemptCalls:
    """Return an attempt's recorded calls, in the class for its kind of agent."""
    if not agent.is_program:
        return solve.attempt_calls(number, clock, workdir)
    from swe_argo.steps.agents.program.continued import ProgramCalls

    return solve.attempt_calls(number, clock, workdir, ProgramCalls)


@contextmanager
def open_model_for(agent: Agent, run: RunFile, calls: AttemptCalls) -> Iterator[Model]:
    """Yield the model for a bundled agent; ``NoModel`` if it asks none."""
    if not agent.asks_model or agent.is_program:
        yield NoModel()
        return
    from swe_argo.steps.models.client import open_model

    with open_model(run.spec) as client:
        yield ContinuedModel(client, calls)


@contextmanager
def open_forwarder_for(
    agent: Agent, run: RunFile, temperature: float | None, calls: AttemptCalls
) -> Iterator[Forwards | None]:
    """Yield the forwarder for an agent program at this temperature; None for other agents."""
    if not agent.is_program:
        yield None
        return
    from swe_argo.steps.agents.program.continued import ContinuedForwarder
    from swe_argo.steps.models.forwarding import open_forwarder

    llm = run.spec.llm.model_copy(update={"temperature": temperature})
    with open_forwarder(run.spec.model_copy(update={"llm": llm}), run.speaks) as forwarder:
        yield ContinuedForwarder(forwarder, calls)
