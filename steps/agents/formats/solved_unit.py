"""A unit that was solved, as it is handed to whatever writes it in another project's format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from swe_argo.steps.contracts.agents import is_model_agent
from swe_argo.steps.contracts.data import Instance, RunFile
from swe_argo.steps.contracts.trajectory import Result, ToolCall, Trajectory, Turn
from swe_argo.steps.contracts.verdict import GradeRecord

TEXT_CALL = "<function="
"""How a call begins in text."""
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class SolvedUnit:
    """What is known of it. ``patch`` holds bytes that are no UTF-8 as lone surrogates (PEP 383)."""

    run: RunFile
    instance: Instance
    attempt: int
    trajectory: Trajectory
    patch: str
    grade: GradeRecord | None = None
    log: str | None = None
    """What the tests printed."""

    @property
    def scaffold(self) -> str | None:
        """Whose tools it used."""
        agent = self.trajectory.agent
        named = agent.extra.scaffold if agent.extra else None
        return named or (agent.name if is_model_agent(agent.name) else None)


@dataclass(frozen=True)
class AgentAction:
    """A call and what came of it. ``first``: of its turn's calls; the turn's tokens and thought are counted with it."""

    turn: Turn
    call: ToolCall | None
    """None: an answer without a call that could be made; ``said`` is the correction."""
    result: Result | None = None
    first: bool = True
    said: str = ""

    @property
    def observation(self) -> str:
        """What the agent saw."""
        return self.said if self.call is None else (self.result and self.result.content) or ""

    @property
    def seconds(self) -> float:
        """Spent in the sandbox."""
        return self.result.extra.seconds if self.result and self.result.extra else 0.0

    @property
    def model_seconds(self) -> float:
        """Spent waiting for the model."""
        metrics = self.turn.metrics
        return metrics.extra.seconds if self.first and metrics and metrics.extra else 0.0

    @property
    def thought(self) -> str:
        """What the agent said beside the call."""
        if not self.first:
            return ""
        return self.turn.message.partition(TEXT_CALL)[0].strip() if self.call else self.turn.message.strip()


def agent_actions(trajectory: Trajectory) -> Iterator[AgentAction]:
    """The agent's turns, call by call, in order."""
    for number, turn in enumerate(trajectory.steps):
        if turn.source != "agent":
            continue
        calls, results = turn.tool_calls or [], turn.observation.results if turn.observation else []
        if not calls or is_malformed(turn):
            after = trajectory.steps[number + 1 : number + 2]
            said = after[0].message if after and after[0].source != "agent" else ""
            yield AgentAction(turn, None, said=(results and results[0].content) or said)
            continue
        by_call = {result.source_call_id: result for result in results}
        for place, call in enumerate(calls):
            yield AgentAction(turn, call, by_call.get(call.tool_call_id), first=place == 0)


def is_malformed(turn: Turn) -> bool:
    """Whether no call could be made of the turn's answer, whatever it held."""
    return bool((turn.extra or {}).get("malformed"))


def replace_surrogates(text: str) -> str:
    """Text that every reader takes: lone surrogates, which are no characters, as U+FFFD."""
    return _SURROGATES.sub("\ufffd", text)


def replace_surrogates_within(value: Any) -> Any:
    """A JSON value with every text ``replaced``: pydantic's reader of JSON refuses the whole file otherwise."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, dict):
        return {replace_surrogates(key): replace_surrogates_within(item) for key, item in value.items()}
    if isinstance(value, list):
        # Token ids are many, and hold no text.
        return (
            value if all(isinstance(item, int | float) for item in value) else [*map(replace_surrogates_within, value)]
        )
    return value
