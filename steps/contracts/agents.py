"""The agents as values: what each one is, what runs it, and the defaults of its own project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeGuard


class AgentKind(StrEnum):
    """What a run of it measures."""

    AGENT = "agent"
    REFERENCE = "reference"
    """The reference patches: all that can be resolved."""
    CONTROL = "control"
    """Untouched repositories, graded although nothing changed: nothing should be resolved."""
    GIVEN = "given"
    """Patches made elsewhere."""
    REPLAY = "replay"
    """Recorded actions, performed again."""


@dataclass(frozen=True)
class Defaults:
    """An agent's own settings, by the names of the fields of ``AgentSpec`` and ``LlmSpec``."""

    read_from: str = ""
    """The version of the project that they were read from; empty where they are ours."""
    steps: int = 40
    """Steps after which it is told to finish."""
    more_steps: int = 0
    """Steps from then on, after which it is ended; without any it is ended untold."""
    max_token_limit: int | None = 65_536
    max_cost_usd: float | None = None
    command_timeout_s: float = 90.0
    commands_timeout_s: float | None = None
    timeout_s: float = 3600.0
    max_malformed: int | None = 3
    temperature: float | None = 0.0
    top_p: float | None = None
    timeout: float = 600.0
    """Seconds of one call of the model."""

    @property
    def agent(self) -> dict[str, Any]:
        """Fields of ``AgentSpec``."""
        names = ("max_token_limit", "max_cost_usd", "command_timeout_s", "commands_timeout_s", "timeout_s")
        return {name: getattr(self, name) for name in (*names, "max_malformed")}

    @property
    def llm(self) -> dict[str, Any]:
        """Fields of ``LlmSpec``."""
        return {name: getattr(self, name) for name in ("temperature", "top_p", "timeout")}


_LOOP = "swe_argo.steps.agents.loop"
_PROGRAM = "swe_argo.steps.agents.program"
DAY_OF_WORK_S = 28_800.0
"""Eight hours: what OpenHands' evaluation gives an instance, and ours where a project sets no end."""


PROGRAM = "program"
"""An agent that is a program of its own: it runs in the sandbox, and its calls of the model are carried out of it."""
PROGRAMS: tuple[str, ...] = ("aider", "claude-code", "codex", "opencode", "openhands-cli", "qwen-code")
"""Those that this project has recipes for (steps/bundles/recipes)."""


@dataclass(frozen=True)
class Agent:
    """What the rest of the project must know of an agent; how it works is known to what runs it alone."""

    name: str
    kind: AgentKind = AgentKind.AGENT
    runs: str | None = None
    """The module with its ``act(task) -> StopReason``, or ``module:Class`` of one's own, imported when it is to act.
    None: it solves nothing, its patches are there before any unit runs."""
    asks_model: bool = False
    calls_tools: bool = False
    """Whether its model acts by calling tools, one answer a step: then limits of steps hold, and a template may
    instruct it."""
    runs_commands: bool = False
    """Whether anything runs in its sandbox at all: then that must be isolated."""
    prompt: str | None = None
    """Template of its first instruction, in templates/prompts; None: it has words of its own, or needs none."""
    takes_prompt_style: bool = False
    """Whether its prompt is one of SWE-bench's published layouts, filled with the files of the row."""
    has_check: bool = False
    """Whether ``runs`` also has ``check()``, which plan calls: it raises ConfigError where it cannot work here."""
    aliases: tuple[str, ...] = ()
    """Names that users of other tools know it by."""
    openhands_class: str | None = None
    """What OpenHands' own files call it, where that is another name."""
    defaults: Defaults = Defaults()

    @property
    def solves(self) -> bool:
        """Whether it needs a sandbox to come to its patch."""
        return self.runs is not None

    @property
    def takes_time(self) -> bool:
        """Whether it works at all: one that neither asks a model nor runs anything is done as soon as it begins."""
        return self.solves and (self.asks_model or self.runs_commands)

    @property
    def is_program(self) -> bool:
        """Whether it is a program of its own, run in the sandbox (swe_argo.steps.contracts.recipe)."""
        return self.runs == _PROGRAM

    @property
    def is_scaffold(self) -> bool:
        """Whether it is data over the one loop: it has words that can be others, and is told before it is ended."""
        return self.runs == _LOOP


_ANY_PROGRAM = Agent(
    PROGRAM,
    runs=_PROGRAM,
    asks_model=True,
    runs_commands=True,
    prompt="program",
    defaults=Defaults(steps=500, max_token_limit=None, timeout_s=DAY_OF_WORK_S, temperature=None),
)
_TABLE = (
    Agent("gold", AgentKind.REFERENCE),
    Agent("given", AgentKind.GIVEN),
    Agent("idle", AgentKind.CONTROL, runs="swe_argo.steps.agents.idle"),
    Agent("replay", AgentKind.REPLAY, runs="swe_argo.steps.agents.replay.agent", runs_commands=True),
    Agent(
        "r2egym",
        runs=_LOOP,
        asks_model=True,
        calls_tools=True,
        runs_commands=True,
        prompt="r2egym",
        aliases=("EditAgent",),
        defaults=Defaults(
            read_from="R2E-Gym 353348a (agent.py, run/edit.py)",
            more_steps=10,
            timeout_s=50_000.0,
            max_malformed=None,
            timeout=7_200.0,
        ),
    ),
    Agent(
        "openhands",
        runs=_LOOP,
        asks_model=True,
        calls_tools=True,
        runs_commands=True,
        prompt="openhands",
        aliases=("CodeActAgent",),
        openhands_class="CodeActAgent",
        defaults=Defaults(
            read_from="OpenHands 0.62.0 (run_infer.sh, llm_config.py, shared.py)",
            steps=100,
            max_token_limit=None,
            command_timeout_s=300.0,
            timeout_s=DAY_OF_WORK_S,
            max_malformed=None,
            top_p=1.0,
        ),
    ),
    Agent(
        "sweagent",
        runs=_LOOP,
        asks_model=True,
        calls_tools=True,
        runs_commands=True,
        prompt="sweagent",
        defaults=Defaults(
            read_from="SWE-agent 1.1.0 (config/default.yaml, tools.py, models.py)",
            steps=250,
            max_token_limit=None,
            max_cost_usd=3.0,
            command_timeout_s=30.0,
            commands_timeout_s=1_800.0,
            timeout_s=DAY_OF_WORK_S,
            top_p=1.0,
        ),
    ),
    Agent(
        "mini-swe-agent",
        runs="swe_argo.steps.agents.mini_swe_agent",
        asks_model=True,
        calls_tools=True,
        runs_commands=True,
        has_check=True,
        aliases=("mini",),
        defaults=Defaults(
            read_from="mini-swe-agent 2.4.6 (config/benchmarks/swebench.yaml)",
            steps=250,
            max_token_limit=None,
            max_cost_usd=3.0,
            command_timeout_s=60.0,
            timeout_s=DAY_OF_WORK_S,
            temperature=None,
        ),
    ),
    _ANY_PROGRAM,
    *(replace(_ANY_PROGRAM, name=name) for name in PROGRAMS),
    Agent(
        "oneshot", runs="swe_argo.steps.agents.oneshot", asks_model=True, runs_commands=True, takes_prompt_style=True
    ),
)
AGENTS: Mapping[str, Agent] = MappingProxyType({agent.name: agent for agent in _TABLE})
"""Name -> agent."""
AGENT_ALIASES: Mapping[str, str] = MappingProxyType({alias: agent.name for agent in _TABLE for alias in agent.aliases})
"""Name that other tools' users know -> name."""


def is_own(name: object) -> TypeGuard[str]:
    """Whether it names an agent of one's own: ``package.module:Class`` or ``path/to/file.py:Class``."""
    return isinstance(name, str) and ":" in name


def is_model_agent(name: str | None) -> bool:
    """Whether it is the name of one of ours that asks a model, with tools that are ours: agent programs have their own.
    For names in files, which may be anybody's."""
    agent = AGENTS.get(name or "")
    return agent is not None and agent.asks_model and not agent.is_program
