"""Notice about an agent's limits, shown before a run."""

from __future__ import annotations

from swe_argo.steps.contracts.agent_spec import AgentSpec, agent_of
from swe_argo.steps.contracts.run_spec import RunSpec


def describe_limits(spec: RunSpec) -> list[str]:
    """Return a sentence with all limits, and the defaults of the agent's project where these differ."""
    own = agent_of(spec.agent).defaults
    if not own.read_from:
        return []
    usual = RunSpec(agent=AgentSpec(name=spec.agent.name))
    said = ", ".join(
        now if now == then else f"{now} (by default {then})" for now, then in zip(_all(spec), _all(usual), strict=True)
    )
    return [f"limits of {spec.agent.name}, by default those of {own.read_from}: {said}"]


def _all(spec: RunSpec) -> list[str]:
    agent, llm = spec.agent, spec.llm
    told, ended = agent.told_after, agent.ended_after
    return [
        f"{told} steps" + (f", ended after {ended}" if ended > told else ""),
        "no limit of tokens" if agent.max_token_limit is None else f"{agent.max_token_limit:,} tokens of context",
        "no limit of money" if agent.max_cost_usd is None else f"{agent.max_cost_usd:g} $ where a price is known",
        f"{agent.command_timeout_s:,g} s a command"
        + (f" and {agent.commands_timeout_s:,g} s in all" if agent.commands_timeout_s else ""),
        f"{agent.timeout_s:,g} s an instance",
        f"{llm.timeout:,g} s a call",
        f"{agent.max_malformed or 'any number of'} malformed answers",
        "temperature not sent" if llm.temperature is None else f"temperature {llm.temperature:g}",
        "top_p not sent" if llm.top_p is None else f"top_p {llm.top_p:g}",
    ]
