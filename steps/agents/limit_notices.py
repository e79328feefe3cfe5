"""Notice about an agent's limits, shown before a run."""

from __future__ import annotations

from swe_argo.steps.contracts.agent_spec import AgentSpec, agent_of
from swe_argo.steps.contracts.run_spec import RunSpec


def describe_limits(spec: RunSpec) -> list[str]:
    """Return a sentence with all limits, and the defaults of the agent's project if these differ."""
    own = agent_of(spec.agent).defaults
    if not own.source_version:
        return []
    default_spec = RunSpec(agent=AgentSpec(name=spec.agent.name))
    limits = ", ".join(
        value if value == default else f"{value} (default {default})"
        for value, default in zip(_list_limits(spec), _list_limits(default_spec), strict=True)
    )
    return [f"limits of {spec.agent.name} (defaults of {own.source_version}): {limits}"]


def _list_limits(spec: RunSpec) -> list[str]:
    """Return all limits in words, in a fixed order."""
    agent, llm = spec.agent, spec.llm
    soft_limit, hard_limit = agent.soft_step_limit, agent.hard_step_limit
    return [
        f"{soft_limit} steps" + (f", ended after {hard_limit}" if hard_limit > soft_limit else ""),
        "no context limit" if agent.max_token_limit is None else f"{agent.max_token_limit:,} tokens of context",
        "no cost limit" if agent.max_cost_usd is None else f"${agent.max_cost_usd:g} if prices are known",
        f"{agent.command_timeout_s:,g} s per command"
        + (f" and {agent.commands_timeout_s:,g} s for all commands" if agent.commands_timeout_s else ""),
        f"{agent.timeout_s:,g} s per instance",
        f"{llm.timeout:,g} s per call",
        f"{agent.max_malformed or 'any number of'} malformed answers",
        "temperature not sent" if llm.temperature is None else f"temperature {llm.temperature:g}",
        "top_p not sent" if llm.top_p is None else f"top_p {llm.top_p:g}",
    ]
