"""Conditions of a run, from the spec and from the machines' records, as data and as sentences."""

from __future__ import annotations

from collections import Counter
from urllib.parse import urlsplit

from swe_argo.steps.contracts.agent_spec import AgentSpec, agent_of
from swe_argo.steps.contracts.agents import AgentKind
from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.machine import Machine
from swe_argo.steps.contracts.run_spec import LlmSpec, SelectSpec
from swe_argo.steps.contracts.wire_protocol import NAMES, WireProtocol
from swe_argo.steps.reports.figures.summary import Conditions
from swe_argo.steps.reports.stored_run import StoredRun
from swe_argo.steps.reports.text.formatting import count, listing

_IDS_SHOWN = 3
_LIMITS = (
    "max_steps",
    "max_steps_absolute",
    "max_token_limit",
    "max_total_tokens",
    "max_cost_usd",
    "timeout_s",
    "command_timeout_s",
    "max_observation",
    "max_malformed",
)


def run_conditions(run: StoredRun) -> Conditions:
    """Return the facts that a reader needs to compare the run with another."""
    spec, value = run.run.spec, agent_of(run.run.spec.agent)
    agent, llm, asks, used = spec.agent, spec.llm, value.asks_model, run.run.validation
    solved = [unit.solve.machine for unit in run.units if unit.solve is not None]
    graded = [unit.grade.machine for unit in run.units if unit.grade is not None and unit.grade.machine is not None]
    return Conditions.model_validate(
        {
            "agent": run.run.agent_title,
            "kind": "regraded" if agent.earlier_run is not None else value.kind.value,
            "hints": saw_hints(agent),
            "solve_network": any(machine.network for machine in solved) if solved else None,
            "grading_network": any(machine.network for machine in graded) if graded else spec.grading.network,
            "timeout_s": spec.grading.timeout_s,
            "machines": _machines(solved + graded),
            "selected": len({unit.instance_id for unit in run.units}),
            "selection": _selection(spec.select),
            "validation": used.validation_id if used else None,
            "unfit": used.unfit if used else {},
            "unfit_kept": used is not None and used.kept,
            "not_gradeable": run.run.not_gradeable,
            "model": (agent.model or run.run.model) if asks else None,
            "helper_model": agent.helper_model if asks else None,
            "translated": _translated(run.run),
            "endpoint": _endpoint(run) if asks else None,
            "format": run.run.call_format if asks else None,
            "sampling": _sampling(llm) if asks else {},
            "prompt_style": agent.prompt_style if value.takes_prompt_style else None,
            "instruction_template": agent.instruction_template,
            "scaffold_words": agent.scaffold_words,
            "iterative_attempts": agent.iterative_max_attempts if asks and agent.iterative else None,
            "critic": agent.critic if asks and agent.iterative else None,
            "limits": _limits(agent, llm) if asks or value.kind is AgentKind.REPLAY else {},
            "max_cost_usd": spec.max_cost_usd,
        }
    )


def saw_hints(agent: AgentSpec) -> bool:
    """Return whether the agent saw the issue's discussion (hints); False for agents without a model."""
    return agent.hints and (agent_of(agent).asks_model or agent.earlier_run is not None)


def _selection(select: SelectSpec) -> list[str]:
    parts = []
    for name in SelectSpec.model_fields:
        value = getattr(select, name)
        if name in ("keep_invalid", "skip_not_gradeable"):  # the report has separate sentences about their effect
            continue
        if value not in (None, 0, []) or (name == "shuffle_seed" and value == 0):
            few = value if not isinstance(value, list) else listing(value) if len(value) <= _IDS_SHOWN else len(value)
            parts.append(f"{name} {few}")
    return parts


def describe_conditions(conditions: Conditions) -> list[str]:
    """Return the conditions as sentences: agent, model, and every limit that is not the default."""
    sentences = []
    if conditions.model is not None:
        where = f" at {conditions.endpoint}" if conditions.endpoint else ""
        way = {"function_calling": " by function calling", "text": " in text"}.get(conditions.format or "", "")
        style = f" in prompt style {conditions.prompt_style}" if conditions.prompt_style else ""
        sampled = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in conditions.sampling.items())
        sentences.append(f"{conditions.agent} asked {conditions.model}{where}{way}{style}, {sampled}.")
    if conditions.helper_model:
        sentences.append(f"Its helpers asked {conditions.helper_model}.")
    if conditions.translated:
        sentences.append(f"Its calls in {conditions.translated} were translated to {NAMES[WireProtocol.CHAT]}.")
    if conditions.instruction_template:
        sentences.append(f"Instructed by the template {conditions.instruction_template}, not the agent's own.")
    if conditions.scaffold_words:
        sentences.append(f"Its system prompt, tools and frames in the words of {conditions.scaffold_words}.")
    if conditions.unfit:
        classes = Counter(conditions.unfit.values())
        counts = listing([f"{n:,} {name}" for name, n in classes.most_common()])
        way = "Run although not valid" if conditions.unfit_kept else "Left out as not valid"
        sentences.append(f"{way} by {conditions.validation}: {count(len(conditions.unfit), 'instance')} ({counts}).")
    if conditions.not_gradeable:
        sentences.append(f"Left out as not gradeable: {_describe_first(conditions.not_gradeable)}.")
    if conditions.limits:
        limits = ", ".join(f"{name} {value}" for name, value in conditions.limits.items())
        sentences.append(f"Limits other than the defaults: {limits}.")
    return sentences


def _describe_first(reasons: dict[str, str]) -> str:
    first, reason = next(iter(reasons.items()))
    which = f"{first} for one" if len(reasons) > 1 else first
    return f"{count(len(reasons), 'instance')} ({which}: {reason.removeprefix(f'{first}: ')})"


def _machines(machines: list[Machine]) -> list[str]:
    return sorted({f"{machine.backend}, {machine.isolation}" for machine in machines})


def _sampling(llm: LlmSpec) -> dict[str, str]:
    """Return the requested sampling values; without a temperature in the spec, the endpoint's own applies."""
    settings = {"temperature": "the endpoint's own" if llm.temperature is None else f"{llm.temperature:g}"}
    for name in ("top_p", "seed", "reasoning_effort"):
        if (value := getattr(llm, name)) is not None:
            settings[name] = f"{value:g}" if isinstance(value, float) else str(value)
    return settings | ({"extra_body": ", ".join(sorted(llm.extra_body))} if llm.extra_body else {})


def _limits(agent: AgentSpec, llm: LlmSpec) -> dict[str, str]:
    limits, scaffold = {}, agent_of(agent).is_scaffold
    for name in _LIMITS:
        usual, value = getattr(AgentSpec(name=agent.name), name), getattr(agent, name)
        if name == "max_steps":
            usual = AgentSpec(name=agent.name).told_after
        elif name == "max_steps_absolute":
            usual = AgentSpec(name=agent.name, max_steps=agent.max_steps).ended_after if scaffold else None
        if value is not None and value != usual:
            limits[name] = f"{value:,g}" + (f" (by default {usual:,g})" if usual is not None else "")
    return limits | ({"max_output_tokens": f"{llm.max_output_tokens:,}"} if llm.max_output_tokens else {})


def _translated(run: RunFile) -> str | None:
    """Return the protocol of an agent program whose calls were translated to chat completions, else None."""
    if run.program is None or not run.speaks:
        return None
    asked = WireProtocol(run.program.recipe.protocol)
    translated = asked not in run.speaks or (run.spec.llm.logprobs and WireProtocol.CHAT in run.speaks)
    return NAMES[asked] if translated and asked is not WireProtocol.CHAT else None


def _endpoint(run: StoredRun) -> str | None:
    """Return the requested endpoint, else the endpoints in the trajectories."""
    requested = run.run.spec.llm.base_url
    urls = [requested] if requested else sorted({unit.endpoint for unit in run.units if unit.endpoint})
    return listing([_address(url) for url in urls]) if urls else None


def _address(url: str) -> str:
    """Return the URL without user, query and fragment, which may contain a key."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")
