"""A solved unit as input of the format writers."""

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
"""Beginning of a call in text."""
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class SolvedUnit:
    """A solved unit. ``patch`` has bytes that are not UTF-8 as lone surrogates (PEP 383)."""

    run: RunFile
    instance: Instance
    attempt: int
    trajectory: Trajectory
    patch: str
    grade: GradeRecord | None = None
    log: str | None = None
    """Output of the tests."""

    @property
    def scaffold(self) -> str | None:
        """Return the scaffold whose tools were used, None if unknown."""
        agent = self.trajectory.agent
        scaffold = agent.extra.scaffold if agent.extra else None
        return scaffold or (agent.name if is_model_agent(agent.name) else None)


@dataclass(frozen=True)
class AgentAction:
    """A call with its result. ``first``: first call of its turn, which carries the turn's tokens and thought."""

    turn: Turn
    call: ToolCall | None
    """None for an answer without a valid call, which has a ``correction``."""
    result: Result | None = None
    first: bool = True
    correction: str = ""

    @property
    def observation(self) -> str:
        """Return the text shown to the agent."""
        return self.correction if self.call is None else (self.result and self.result.content) or ""

    @property
    def seconds(self) -> float:
        """Return the seconds spent in the sandbox."""
        return self.result.extra.seconds if self.result and self.result.extra else 0.0

    @property
    def model_seconds(self) -> float:
        """Return the seconds spent waiting for the model."""
        metrics = self.turn.metrics
        return metrics.extra.seconds if self.first and metrics and metrics.extra else 0.0

    @property
    def thought(self) -> str:
        """Return the agent's text beside the call."""
        if not self.first:
            return ""
        return self.turn.message.partition(TEXT_CALL)[0].strip() if self.call else self.turn.message.strip()


def agent_actions(trajectory: Trajectory) -> Iterator[AgentAction]:
    """Yield the agent's turns call by call, in order; a turn without a valid call is one action with a correction."""
    for number, turn in enumerate(trajectory.steps):
        if turn.source != "agent":
            continue
        calls, results = turn.tool_calls or [], turn.observation.results if turn.observation else []
        if not calls or is_malformed(turn):
            following = trajectory.steps[number + 1 : number + 2]
            next_message = following[0].message if following and following[0].source != "agent" else ""
            yield AgentAction(turn, None, correction=(results and results[0].content) or next_message)
            continue
        by_call = {result.source_call_id: result for result in results}
        for place, call in enumerate(calls):
            yield AgentAction(turn, call, by_call.get(call.tool_call_id), first=place == 0)


def is_malformed(turn: Turn) -> bool:
    """Return whether the turn's answer had no valid call."""
    return bool((turn.extra or {}).get("malformed"))


def replace_surrogates(text: str) -> str:
    """Return the text with lone surrogates replaced by U+FFFD, so that every reader accepts it."""
    return _SURROGATES.sub("\ufffd", text)


def replace_surrogates_within(value: Any) -> Any:
    """Return a JSON value with all texts' surrogates replaced: pydantic's JSON reader refuses the file otherwise."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, dict):
        return {replace_surrogates(key): replace_surrogates_within(item) for key, item in value.items()}
    if isinstance(value, list):
        # Lists of numbers are skipped: token ids are many, and hold no text.
        return (
            value if all(isinstance(item, int | float) for item in value) else [*map(replace_surrogates_within, value)]
        )
    return value
