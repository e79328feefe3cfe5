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

from swe_argo.steps.agents.going_on import AgentClock, AttemptCalls, SolveCalls, answer_of, describe_answer
from swe_argo.steps.agents.program.request_digest import RequestDigests
from swe_argo.steps.agents.program.token_record import FIELDS, TokenRecord
from swe_argo.steps.contracts.kept_calls import KeptCall, KeptForwarded
from swe_argo.steps.contracts.trajectory import Metrics, Result, Usage
from swe_argo.steps.models.forwarding import Forwarder
from swe_argo.steps.models.program_answers import Forwarded
from swe_argo.steps.models.program_requests import ModelCall
from swe_argo.steps.models.reply import NoReplyError


class ProgramCalls(AttemptCalls):
    """Calls of a program's attempt: each is replayed for any equal request, in any order. Thread-safe.

    The program sees only real results, so its replay cannot diverge.
    """

    def __init__(self, solve: SolveCalls, number: int, known: list[KeptCall], clock: AgentClock, workdir: str) -> None:
        super().__init__(solve, number, known, clock, workdir)
        self._taking, self._starts_over = threading.Lock(), False
        self._inherited, self._lost_s = Usage(), 0.0
        self._untaken: dict[str, list[KeptCall]] = {}
        for call in known:
            if call.forwarded is not None:
                self._untaken.setdefault(call.request, []).append(call)

    @property
    def inherited(self) -> Usage:
        """Return the usage of the replayed calls, summed per call."""
        return self._inherited

    @property
    def lost_s(self) -> float:
        """Return the lost seconds of the replayed call with the most, as calls have no order."""
        return self._lost_s

    def show(self, results: list[Result]) -> list[Result]:
        """Return the new results unchanged."""
        return results

    def take(self, request: str) -> KeptCall | None:
        """Return the oldest unused recorded answer to an equal request, None if there is none."""
        with self._taking:
            same = self._untaken.get(request)
            if not same:
                return None
            known = same.pop(0)
            self.reused.append(known)
            self._inherited += _usage_of(known.metrics)
            self._lost_s = max(self._lost_s, known.lost_s)
            self.clock.set(max(self.clock(), known.seconds))
        return known


class ContinuedForwarder:
    """A forwarder that answers recorded requests from the record. Thread-safe."""

    def __init__(self, forwarder: Forwarder, calls: AttemptCalls) -> None:
        """Wrap a forwarder. ``calls``: ProgramCalls."""
        self._forwarder, self._calls = forwarder, calls
        self._digests = RequestDigests(calls.workdir)
        self._tokens = TokenRecord(calls.known)

    @property
    def usage(self) -> Usage:
        """Return the usage of all calls of the attempt, replayed ones included."""
        return self._calls.inherited + self._forwarder.usage

    @property
    def lost_s(self) -> float:
        """Return the seconds lost to the endpoint."""
        return self._calls.lost_s + self._forwarder.lost_s

    @property
    def reused_count(self) -> int:
        """Return the number of answers replayed so far."""
        return len(self._calls.reused)

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
        """Return the recorded answer, else the forwarder's, recorded if a model gave it. Raises as ``Forwarder``."""
        request = self._digests.digest(method, path, body)
        if request is None:
            return self._forwarder.answer(method, path, headers, body, timeout_s)
        if (known := self._calls.take(request)) is not None and known.forwarded is not None:
            then, self._forwarder.goes_on = known.forwarded, True
            return Forwarded(then.status, dict(then.headers), then.body, self._call_then(path, body, known))
        done = self._forwarder.answer(method, path, headers, body, timeout_s)
        if done.call is not None:
            kept = self._describe(done, done.call)
            self._calls.keep(request, self._forwarder.usage, self.lost_s, **kept)
            self._tokens.add(kept["forwarded"].name, done.call.metrics)
        return done

    def refuse(self, path: str, why: str) -> Forwarded:
        """Return an error response, see ``Forwarder.refuse``."""
        return self._forwarder.refuse(path, why)

    def _describe(self, done: Forwarded, call: ModelCall) -> dict[str, Any]:
        """Return an answer as fields of ``KeptCall``."""
        answer = NoReplyError(call.ended) if call.ended else call.reply
        words = describe_answer(answer) if answer else {}
        metrics = call.metrics.model_copy(update=dict.fromkeys(FIELDS))
        tokens = self._tokens.pack(call.metrics)
        forwarded = KeptForwarded(status=done.status, headers=done.headers, body=done.body, **tokens)
        return {**words, "metrics": metrics, "forwarded": forwarded}

    def _call_then(self, path: str, body: bytes, known: KeptCall) -> ModelCall | None:
        """Return the call to record: the new request with the recorded answer."""
        if (call := self._forwarder.read_call(path, body)) is None or known.forwarded is None:
            return None
        metrics = (known.metrics or Metrics()).model_copy(update=self._tokens.unpack(known.forwarded))
        self._tokens.add(known.forwarded.name, metrics)
        answer = answer_of(known.model_copy(update={"metrics": metrics}))
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
