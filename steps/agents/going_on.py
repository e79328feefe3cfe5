"""Resuming of a lost solve: recorded calls of an earlier try are replayed, only later ones go to the model.

The agent works from the start in a fresh sandbox. It is shown the recorded observations, provided the new ones differ
only in parts that vary between runs of a program. So each request equals the recorded one byte for byte; otherwise the
attempt cannot be resumed.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from swe_argo.steps.agents.observation_diff import is_same_observation
from swe_argo.steps.contracts.data import WORKDIR
from swe_argo.steps.contracts.kept_calls import KeptCall, KeptToolCall
from swe_argo.steps.contracts.trajectory import Result, Usage
from swe_argo.steps.models.reply import Message, NoReplyError, Reply, RequestedCall, ToolDefinition

if TYPE_CHECKING:
    from swe_argo.steps.models.client import Client


class DivergedError(Exception):
    """A replayed action had another result or request than recorded: the attempt cannot be resumed."""


class AgentClock:
    """Clock of the seconds an agent has worked, earlier tries included."""

    def __init__(self) -> None:
        self._zero = time.monotonic()

    def __call__(self) -> float:
        """Return the seconds worked."""
        return time.monotonic() - self._zero

    def set(self, seconds: float) -> None:
        """Set the seconds worked."""
        self._zero = time.monotonic() - seconds


@dataclass
class SolveCalls:
    """Recorded model calls of a solve: ``earlier`` come from previous tries, ``keep`` records new ones."""

    try_name: str = ""
    earlier: list[KeptCall] = field(default_factory=list)
    keep: Callable[[Iterable[KeptCall]], None] = lambda _: None
    kept_as: str = ""
    """File name of the recorded calls without its number, see ``SolveRecord.kept_calls``."""
    started_over: str = ""
    """Reason why the work of an earlier try is not, or only partly, reused."""
    spent: Usage = field(default_factory=Usage)
    """Usage of this try's finished attempts."""

    def begin(self) -> None:
        """Record the reused calls first, so that a further try needs only the newest record."""
        if self.earlier:
            self.keep(self.earlier)

    def start_over(self, attempt: int, why: str) -> None:
        """Drop the recorded calls of an attempt and of later ones."""
        self.started_over = why
        self.earlier = [call for call in self.earlier if call.attempt < attempt]

    def of_attempt(
        self, number: int, clock: AgentClock, workdir: str = WORKDIR, kind: type[AttemptCalls] | None = None
    ) -> AttemptCalls:
        """Return the calls of one attempt. ``workdir``: the repository's folder."""
        known = [call for call in self.earlier if call.attempt == number]
        return (kind or AttemptCalls)(self, number, known, clock, workdir)


class AttemptCalls:
    """Calls of one attempt: the recorded ones first, then new ones."""

    def __init__(self, solve: SolveCalls, number: int, known: list[KeptCall], clock: AgentClock, workdir: str) -> None:
        self.solve, self.known, self.clock = solve, known, clock
        self.reused: list[KeptCall] = []
        """The recorded calls that were replayed."""
        self.workdir = workdir
        self._number = number
        self._shown: list[str | None] = []
        self._starts_over = bool(solve.started_over) and not known

    @property
    def inherited(self) -> Usage:
        """Return the usage of the replayed calls."""
        return self.reused[-1].usage if self.reused else Usage()

    @property
    def lost_s(self) -> float:
        """Return the seconds lost to the endpoint up to the last replayed call."""
        return self.reused[-1].lost_s if self.reused else 0.0

    @property
    def _next(self) -> KeptCall | None:
        return self.known[len(self.reused)] if len(self.reused) < len(self.known) else None

    def show(self, results: list[Result]) -> list[Result]:
        """Return the recorded results of the agent's actions. Raises DivergedError if the new results differ."""
        if (known := self._next) is not None:
            then = known.shown[len(self._shown) :][: len(results)]
            number = len(self.reused)
            if len(then) < len(results):
                raise DivergedError(f"after answer {number} it saw less")
            for before, now in zip(then, results, strict=True):
                if not is_same_observation(before or "", now.content or "", self.workdir):
                    raise DivergedError(f"after answer {number} it saw something else")
            results = [now.model_copy(update={"content": before}) for before, now in zip(then, results, strict=True)]
        self._shown += [result.content for result in results]
        return results

    def take(self, request: str) -> KeptCall | None:
        """Return the next recorded answer, None if none is left. Raises DivergedError if its request differs."""
        if (known := self._next) is None:
            return None
        if known.request != request:
            raise DivergedError(f"request {len(self.reused) + 1} is another")
        self.reused.append(known)
        self._shown = []
        self.clock.set(known.seconds)
        return known

    def add(self, request: str, answer: Reply | NoReplyError, model: ContinuedModel) -> None:
        """Record a new answer."""
        shown, self._shown = self._shown, []
        own = model.usage - self.inherited
        self.keep(request, own, model.lost_s, shown=shown, metrics=answer.metrics, **describe_answer(answer))

    def keep(self, request: str, own: Usage, lost_s: float, **said: Any) -> None:
        """Record an answer by the fields of ``KeptCall``. ``own``: this try's usage for the attempt so far."""
        starts_over, self._starts_over = self._starts_over, False
        call = KeptCall(
            try_name=self.solve.try_name,
            attempt=self._number,
            starts_over=starts_over,
            request=request,
            usage=self.inherited + own,
            spent=self.solve.spent + own,
            lost_s=lost_s,
            seconds=round(self.clock(), 3),
            at=datetime.now(UTC),
            **said,
        )
        self.solve.keep([call])


class ContinuedModel:
    """A model that replays recorded answers first. ``usage`` and ``lost_s`` include the replayed calls."""

    def __init__(self, client: Client, calls: AttemptCalls) -> None:
        self.name = client.name
        self._client, self._calls = client, calls

    @property
    def usage(self) -> Usage:
        """Return the usage of all calls of the attempt."""
        return self._calls.inherited + self._client.usage

    @property
    def lost_s(self) -> float:
        """Return the seconds lost to the endpoint."""
        return self._calls.lost_s + self._client.lost_s

    def ask(
        self,
        messages: list[Message],
        *,
        tools: list[ToolDefinition] | None = None,
        temperature: float | None = None,
        timeout_s: float | None = None,
        stop: list[str] | None = None,
    ) -> Reply:
        """Return the recorded answer, else the client's, which is recorded. Raises as Model, and DivergedError."""
        request = _digest(self.name, messages, tools, temperature, stop)
        if (known := self._calls.take(request)) is not None:
            answer = answer_of(known)
            if isinstance(answer, NoReplyError):
                raise answer
            self._client.recall(answer.metrics)
            return answer
        try:
            reply = self._client.ask(messages, tools=tools, temperature=temperature, timeout_s=timeout_s, stop=stop)
        except NoReplyError as end:
            self._calls.add(request, end, self)
            raise
        self._calls.add(request, reply, self)
        return reply


def _digest(*asked: object) -> str:
    return hashlib.sha256(json.dumps(asked, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def describe_answer(answer: Reply | NoReplyError) -> dict[str, Any]:
    """Return an answer as fields of ``KeptCall``."""
    if isinstance(answer, NoReplyError):
        return {"ended": answer.reason, "detail": answer.detail}
    calls = [KeptToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in answer.calls]
    return {"text": answer.text, "reasoning": answer.reasoning, "calls": calls, "message": answer.message}


def answer_of(call: KeptCall) -> Reply | NoReplyError:
    """Return the answer of a recorded call. Raises DivergedError if the record is incomplete."""
    if call.ended is not None:
        return NoReplyError(call.ended, call.detail, call.metrics)
    if call.metrics is None:
        raise DivergedError("an answer is not whole")
    calls = tuple(RequestedCall(each.id, each.name, each.arguments) for each in call.calls)
    return Reply(call.text, call.metrics, call.message, call.reasoning, calls)
