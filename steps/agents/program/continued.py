"""Resuming of an agent program: recorded requests get the recorded answers, without asking the model.

The program works from the start in a fresh sandbox, and sees the real results of its actions there. A request equal to
a recorded one in all that matters to its answer gets the recorded answer, byte for byte; any other goes to the model.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any

from typing_extensions import override

from swe_argo.steps.agents.program.request_digest import RequestDigests
from swe_argo.steps.agents.program.token_record import FIELDS, TokenRecord
from swe_argo.steps.agents.resume import AgentClock, AttemptCalls, SolveCalls, answer_of, describe_answer
from swe_argo.steps.contracts.recorded_calls import RecordedCall, RecordedForward
from swe_argo.steps.contracts.trajectory import Metrics, Result, Usage
from swe_argo.steps.models.forwarding import Forwarder
from swe_argo.steps.models.program_answers import Forwarded
from swe_argo.steps.models.program_requests import ModelCall
from swe_argo.steps.models.reply import NoReplyError


class ProgramCalls(AttemptCalls):
    """Calls of a program's attempt: each is replayed for any equal request, in any order. Thread-safe.

    The program sees only real results, so its replay cannot diverge.
    """

    def __init__(
        self, solve: SolveCalls, number: int, recorded_calls: list[RecordedCall], clock: AgentClock, workdir: str
    ) -> None:
        super().__init__(solve, number, recorded_calls, clock, workdir)
        self._lock, self._starts_over = threading.Lock(), False
        self._inherited, self._lost_s = Usage(), 0.0
        self._unused: dict[str, list[RecordedCall]] = {}
        """Request digest -> recorded calls that are not replayed yet, oldest first."""
        for call in recorded_calls:
            if call.forwarded is not None:
                self._unused.setdefault(call.request, []).append(call)

    @property
    @override
    def replayed_usage(self) -> Usage:
        """Return the usage of the replayed calls, summed per call."""
        return self._inherited

    @property
    @override
    def lost_s(self) -> float:
        """Return the most lost seconds of any replayed call, because calls have no order."""
        return self._lost_s

    @override
    def results_to_show(self, results: list[Result]) -> list[Result]:
        """Return the new results unchanged."""
        return results

    @override
    def take_recorded(self, request: str) -> RecordedCall | None:
        """Return the oldest unused recorded answer to an equal request, None if there is none."""
        with self._lock:
            equal_calls = self._unused.get(request)
            if not equal_calls:
                return None
            recorded = equal_calls.pop(0)
            self.replayed.append(recorded)
            self._inherited += _usage_of(recorded.metrics)
            self._lost_s = max(self._lost_s, recorded.lost_s)
            self.clock.set(max(self.clock(), recorded.seconds))
        return recorded


class ContinuedForwarder:
    """A forwarder that answers recorded requests from the record. Thread-safe."""

    def __init__(self, forwarder: Forwarder, calls: AttemptCalls) -> None:
        """Wrap a forwarder. ``calls``: ProgramCalls."""
        self._forwarder, self._calls = forwarder, calls
        self._digests = RequestDigests(calls.workdir)
        self._tokens = TokenRecord(calls.recorded)

    @property
    def usage(self) -> Usage:
        """Return the usage of all calls of the attempt, replayed ones included."""
        return self._calls.replayed_usage + self._forwarder.usage

    @property
    def lost_s(self) -> float:
        """Return the seconds lost to the endpoint."""
        return self._calls.lost_s + self._forwarder.lost_s

    @property
    def reused_count(self) -> int:
        """Return the number of answers replayed so far."""
        return len(self._calls.replayed)

    @property
    def endpoint(self) -> str:
        """Return the endpoint, see ``Forwarder.endpoint``."""
        return self._forwarder.endpoint

    @property
    def model(self) -> str:
        """Return the model's name, see ``Forwarder.model``."""
        return self._forwarder.model

    @property
    def helper_model(self) -> str:
        """Return the helper model's name, see ``Forwarder.helper_model``."""
        return self._forwarder.helper_model

    def __enter__(self) -> ContinuedForwarder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._forwarder.close()

    def answer(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, timeout_s: float | None = None
    ) -> Forwarded:
        """Return the recorded answer, else the forwarder's. Records model answers.

        Requests that ask no model always go to the forwarder. Raises the errors of ``Forwarder.answer``.
        """
        request = self._digests.digest(method, path, body)
        if request is None:
            return self._forwarder.answer(method, path, headers, body, timeout_s)
        if (recorded := self._calls.take_recorded(request)) is not None and recorded.forwarded is not None:
            # The endpoint accepted this conversation in an earlier try, so a later refusal is due to the conversation.
            recorded_answer, self._forwarder.was_accepted = recorded.forwarded, True
            return Forwarded(
                recorded_answer.status,
                dict(recorded_answer.headers),
                recorded_answer.body,
                self._recorded_call(path, body, recorded),
            )
        forwarded = self._forwarder.answer(method, path, headers, body, timeout_s)
        if forwarded.call is not None:
            fields = self._describe(forwarded, forwarded.call)
            self._calls.store(request, self._forwarder.usage, self.lost_s, **fields)
            self._tokens.add(fields["forwarded"].name, forwarded.call.metrics)
        return forwarded

    def refuse(self, path: str, reason: str) -> Forwarded:
        """Return an error response, see ``Forwarder.refuse``."""
        return self._forwarder.refuse(path, reason)

    def _describe(self, answer: Forwarded, call: ModelCall) -> dict[str, Any]:
        """Return an answer as fields of ``RecordedCall``."""
        reply = NoReplyError(call.ended) if call.ended else call.reply
        answer_fields = describe_answer(reply) if reply else {}
        metrics = call.metrics.model_copy(update=dict.fromkeys(FIELDS))
        tokens = self._tokens.pack(call.metrics)
        forwarded = RecordedForward(status=answer.status, headers=answer.headers, body=answer.body, **tokens)
        return {**answer_fields, "metrics": metrics, "forwarded": forwarded}

    def _recorded_call(self, path: str, body: bytes, recorded: RecordedCall) -> ModelCall | None:
        """Return the call to record: the new request with the recorded answer."""
        if (call := self._forwarder.read_call(path, body)) is None or recorded.forwarded is None:
            return None
        metrics = (recorded.metrics or Metrics()).model_copy(update=self._tokens.unpack(recorded.forwarded))
        self._tokens.add(recorded.forwarded.name, metrics)
        answer = answer_of(recorded.model_copy(update={"metrics": metrics}))
        if isinstance(answer, NoReplyError):
            return replace(call, ended=answer.reason, metrics=metrics)
        return replace(call, reply=answer, metrics=metrics)


def _usage_of(metrics: Metrics | None) -> Usage:
    """Return the usage of one call; a refused request counts as no call."""
    if metrics is None or metrics.extra is None:
        return Usage(requests=1)
    return Usage(
        calls=1,
        requests=metrics.extra.requests,
        prompt_tokens=metrics.prompt_tokens or 0,
        cached_tokens=metrics.cached_tokens or 0,
        completion_tokens=metrics.completion_tokens or 0,
        reasoning_tokens=metrics.extra.reasoning_tokens or 0,
        cost_usd=metrics.cost_usd,
        seconds=metrics.extra.seconds,
    )
