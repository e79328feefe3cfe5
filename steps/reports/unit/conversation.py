"""``trajectory.json`` as people read it, on a page and at a terminal: plain values, whatever the file holds.

Not validated: a run has tens of thousands of turns, and a file of another version or a broken producer must not cost
the report. What has not the expected type is taken for absent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from math import isfinite
from typing import Any

from pydantic import ValidationError

from swe_argo.steps.contracts.trajectory import Usage

DEEPEST = 20
"""Levels of attempts within attempts that are read; iterative mode makes one."""


@dataclass(frozen=True, slots=True)
class ResultView:
    """What came of a call."""

    text: str | None
    exit_code: int | None = None
    timed_out: bool = False
    seconds: float = 0.0
    cut: bool = False
    recorded: str | None = None
    """In a replay: what was observed then, where it was something else."""


@dataclass(frozen=True, slots=True)
class ToolCallView:
    """A call of a tool."""

    name: str
    arguments: dict[str, Any]
    results: tuple[ResultView, ...]


@dataclass(frozen=True, slots=True)
class UsageView:
    """What the model's answer took."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0
    cost: float | None = None
    seconds: float = 0.0
    requests: int = 1
    finish: str = ""


@dataclass(frozen=True, slots=True)
class TurnView:
    """A turn."""

    number: int
    source: str
    after_s: float | None
    """Since the agent began."""
    message: str
    reasoning: str
    calls: tuple[ToolCallView, ...]
    other_results: tuple[ResultView, ...]
    """Observations that belong to no call."""
    usage: UsageView | None
    """None where no model was asked."""
    malformed: bool
    """No call could be made of the answer."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """One attempt, whole or as far as it got."""

    stop: str
    seconds: float
    usage: Usage
    turns: tuple[TurnView, ...]
    agent: tuple[str, ...] = ()
    """Its name, the model, how it called its tools, and whose they were, as far as that is known."""
    offers_tools: bool = False
    """Whether the model was offered tools, or told of them."""
    endpoint: str = ""
    notes: str = ""
    """Remarks of the agent's runner that belong to no turn."""
    printed: str = ""
    """What an agent program printed itself."""
    beside: bool = False
    """Whether it is a further conversation of the attempt that it stands in."""
    others: tuple[Conversation, ...] = field(default=())
    """The attempt's further conversations; iterative mode: the attempts that were not chosen, in order."""

    @property
    def calls(self) -> int:
        """Of tools."""
        return sum(len(turn.calls) for turn in self.turns)

    @property
    def model_answers(self) -> list[TurnView]:
        """The agent's turns for which a model was asked."""
        return [turn for turn in self.turns if turn.source == "agent" and turn.usage is not None]

    @property
    def useless_answers(self) -> list[TurnView]:
        """Those without what the agent expects: a call, a patch, or where no tools were offered, any words."""
        return [
            turn
            for turn in self.model_answers
            if turn.malformed or not (turn.calls or (turn.message.strip() and not self.offers_tools))
        ]

    @property
    def answers(self) -> int:
        """Turns of the agent."""
        return sum(turn.source == "agent" for turn in self.turns)


def read_conversation(data: bytes) -> Conversation:
    """Raises ValueError for what is no JSON object, or one without turns."""
    try:
        read = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(read, dict) or not isinstance(read.get("steps"), list):
        raise ValueError("no trajectory")  # noqa: TRY004 - what bytes hold, as json has it
    return _conversation(read, 0)


def _conversation(read: dict[str, Any], level: int) -> Conversation:
    extra, agent = _dict(read.get("extra")), _dict(read.get("agent"))
    how = _dict(agent.get("extra"))
    scaffold = _text(how.get("scaffold"))
    words = [_text(agent.get("name")), _text(agent.get("model_name")), _text(how.get("format")).replace("_", " ")]
    words += [f"tools of {scaffold}"] if scaffold else []
    began = _time(extra.get("started_at"))
    others = _list(read.get("subagent_trajectories")) if level < DEEPEST else []
    return Conversation(
        stop=_text(extra.get("stop_reason")),
        seconds=_number(extra.get("seconds")),
        usage=_usage(read),
        turns=tuple(_turn(_dict(step), n, began) for n, step in enumerate(_list(read.get("steps")), 1)),
        agent=tuple(dict.fromkeys(word for word in words if word)),
        offers_tools=bool(agent.get("tool_definitions")),
        endpoint=_text(how.get("endpoint")),
        notes=_text(read.get("notes")),
        printed=_text(extra.get("printed")),
        beside=extra.get("beside") is True,
        others=tuple(_conversation(_dict(other), level + 1) for other in others),
    )


def _turn(step: dict[str, Any], number: int, began: datetime | None) -> TurnView:
    results = [_dict(one) for one in _list(_dict(step.get("observation")).get("results"))]
    calls = [_dict(one) for one in _list(step.get("tool_calls"))]
    ids = [call.get("tool_call_id") for call in calls]
    at = _time(step.get("timestamp")) if began is not None else None
    return TurnView(
        number=number,
        source=_text(step.get("source")),
        after_s=(at - began).total_seconds() if at is not None and began is not None else None,
        message=_message(step.get("message")),
        reasoning=_text(step.get("reasoning_content")),
        calls=tuple(
            ToolCallView(
                _text(call.get("function_name")), _arguments(call.get("arguments")), tuple(_results_of(name, results))
            )
            for name, call in zip(ids, calls, strict=True)
        ),
        other_results=tuple(_result_view(one) for one in results if one.get("source_call_id") not in ids),
        usage=_usage_view(_dict(step["metrics"])) if isinstance(step.get("metrics"), dict) else None,
        malformed=bool(_dict(step.get("extra")).get("malformed")),
    )


def _results_of(name: Any, results: list[dict[str, Any]]) -> Iterator[ResultView]:
    return (_result_view(one) for one in results if one.get("source_call_id") == name)


def _result_view(result: dict[str, Any]) -> ResultView:
    extra = _dict(result.get("extra"))
    code, content, recorded = extra.get("exit_code"), result.get("content"), extra.get("recorded")
    return ResultView(
        text=None if content is None else _message(content),
        exit_code=code if isinstance(code, int) else None,
        timed_out=extra.get("timed_out") is True,
        seconds=_number(extra.get("seconds")),
        cut=extra.get("cut") is True,
        recorded=None if recorded is None else _message(recorded),
    )


def _usage_view(metrics: dict[str, Any]) -> UsageView:
    extra = _dict(metrics.get("extra"))
    return UsageView(
        prompt=int(_number(metrics.get("prompt_tokens"))),
        cached=int(_number(metrics.get("cached_tokens"))),
        completion=int(_number(metrics.get("completion_tokens"))),
        reasoning=int(_number(extra.get("reasoning_tokens"))),
        cost=_maybe(metrics.get("cost_usd")),
        seconds=_number(extra.get("seconds")),
        requests=int(_number(extra.get("requests"))) or 1,
        finish=_text(extra.get("finish_reason")),
    )


def _usage(read: Any) -> Usage:
    try:
        return Usage.model_validate(_dict(_dict(_dict(read).get("extra")).get("usage")))
    except ValidationError:
        return Usage()


def _message(value: Any) -> str:
    """ATIF allows a list of parts where there are images: their texts."""
    if isinstance(value, list):
        return "\n".join(_text(_dict(part).get("text")) or f"[{_text(_dict(part).get('type'))}]" for part in value)
    return _text(value)


def _arguments(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {} if value is None else {"": value}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float:
    return _maybe(value) or 0.0


def _maybe(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) and number >= 0 else None


def _time(value: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo else None
