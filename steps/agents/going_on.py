"""Going on where an earlier try stopped: its answered calls are answered from the record while the agent does all
again, and the model is asked only what comes after them.

The agent works as ever, in a fresh machine. It is shown what came of its actions then, if that is what comes of them
now but for what varies from one run of a program to the next; so each request is the recorded one, byte for byte, or
there is no going on.
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
    """What an earlier try did came out otherwise: there is no going on from it."""


class AgentClock:
    """Seconds that an agent has worked, those of earlier tries included."""

    def __init__(self) -> None:
        self._zero = time.monotonic()

    def __call__(self) -> float:
        """So many."""
        return time.monotonic() - self._zero

    def set(self, seconds: float) -> None:
        """It has worked so long."""
        self._zero = time.monotonic() - seconds


@dataclass
class SolveCalls:
    """The answered calls of a solve: ``earlier`` are those of tries before, ``keep`` takes its own."""

    try_name: str = ""
    earlier: list[KeptCall] = field(default_factory=list)
    keep: Callable[[Iterable[KeptCall]], None] = lambda _: None
    kept_as: str = ""
    """Where, by ``SolveRecord.kept_calls``."""
    started_over: str = ""
    """Why what an earlier try had done is not, or not all, taken over."""
    spent: Usage = field(default_factory=Usage)
    """Of the attempts of this try that are over."""

    def begin(self) -> None:
        """Keep what is taken over first: a further try needs only the record of the newest."""
        if self.earlier:
            self.keep(self.earlier)

    def start_over(self, attempt: int, why: str) -> None:
        """Forget what is known of an attempt and of those after it."""
        self.started_over = why
        self.earlier = [call for call in self.earlier if call.attempt < attempt]

    def of_attempt(
        self, number: int, clock: AgentClock, workdir: str = WORKDIR, kind: type[AttemptCalls] | None = None
    ) -> AttemptCalls:
        """Those of one attempt. ``workdir``: where the repository is."""
        known = [call for call in self.earlier if call.attempt == number]
        return (kind or AttemptCalls)(self, number, known, clock, workdir)


class AttemptCalls:
    """The calls of one attempt: first those that are known, then its own."""

    def __init__(self, solve: SolveCalls, number: int, known: list[KeptCall], clock: AgentClock, workdir: str) -> None:
        self.solve, self.known, self.clock = solve, known, clock
        self.reused: list[KeptCall] = []
        """Of those that are known, the ones that were asked again."""
        self.workdir = workdir
        self._number = number
        self._shown: list[str | None] = []
        self._starts_over = bool(solve.started_over) and not known

    @property
    def inherited(self) -> Usage:
        """What the calls that are taken over had cost."""
        return self.reused[-1].usage if self.reused else Usage()

    @property
    def lost_s(self) -> float:
        """Seconds that the endpoint had wasted until the last of these was answered."""
        return self.reused[-1].lost_s if self.reused else 0.0

    @property
    def _next(self) -> KeptCall | None:
        return self.known[len(self.reused)] if len(self.reused) < len(self.known) else None

    def show(self, results: list[Result]) -> list[Result]:
        """What the agent is to see of its actions: what it saw then. Raises DivergedError where that was another."""
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
        """The known answer; None where there is none any more. Raises DivergedError where another was asked then."""
        if (known := self._next) is None:
            return None
        if known.request != request:
            raise DivergedError(f"request {len(self.reused) + 1} is another")
        self.reused.append(known)
        self._shown = []
        self.clock.set(known.seconds)
        return known

    def add(self, request: str, answer: Reply | NoReplyError, model: ContinuedModel) -> None:
        """Keep an answer that has come."""
        shown, self._shown = self._shown, []
        own = model.usage - self.inherited
        self.keep(request, own, model.lost_s, shown=shown, metrics=answer.metrics, **describe_answer(answer))

    def keep(self, request: str, own: Usage, lost_s: float, **said: Any) -> None:
        """Keep what was said, by the names of ``KeptCall``. ``own``: what this try took for the attempt so far."""
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
    """A model whose first answers are known already. ``usage`` and ``lost_s`` are the attempt's, theirs included."""

    def __init__(self, client: Client, calls: AttemptCalls) -> None:
        self.name = client.name
        self._client, self._calls = client, calls

    @property
    def usage(self) -> Usage:
        """Of all calls of the attempt."""
        return self._calls.inherited + self._client.usage

    @property
    def lost_s(self) -> float:
        """Seconds that the endpoint wasted."""
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
        """The known answer, else the client's, which is kept. Raises as Model, and DivergedError."""
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
    """What was said, by the names of ``KeptCall``."""
    if isinstance(answer, NoReplyError):
        return {"ended": answer.reason, "detail": answer.detail}
    calls = [KeptToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in answer.calls]
    return {"text": answer.text, "reasoning": answer.reasoning, "calls": calls, "message": answer.message}


def answer_of(call: KeptCall) -> Reply | NoReplyError:
    """What was said. Raises DivergedError where that is not whole."""
    if call.ended is not None:
        return NoReplyError(call.ended, call.detail, call.metrics)
    if call.metrics is None:
        raise DivergedError("an answer is not whole")
    calls = tuple(RequestedCall(each.id, each.name, each.arguments) for each in call.calls)
    return Reply(call.text, call.metrics, call.message, call.reasoning, calls)
