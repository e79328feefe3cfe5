"""A model behind an OpenAI-compatible endpoint, asked through the openai library."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tenacity import RetryCallState, Retrying, retry_if_exception_type

from steps.contracts.run import RunSpec
from steps.contracts.trajectory import Metrics, MetricsExtra, StopReason, Usage
from steps.models.answer import Answered, metrics_of, reply_of
from steps.models.body import Wording
from steps.models.connection import Connection, DroppedError, EndlessError, RefusedError
from steps.models.endpoint import Endpoint, endpoint
from steps.models.errors import Meaning, meaning
from steps.models.failures import failed, refused
from steps.models.gate import Gate, open_gate
from steps.models.reply import Message, NoReplyError, Reply, ToolDefinition
from steps.models.tokens import SharedIds
from steps.models.waits import wait_s

log = logging.getLogger(__name__)
FIRST_WAIT_S = 1.0
"""At most, before the second request; each further wait may be twice as long."""
MOMENT_S = 0.001
"""The least time that a request is given."""


def open_model(spec: RunSpec, *, gate: Gate | None = None, first_wait_s: float = FIRST_WAIT_S) -> Client:
    """The model that a wish names, at its endpoint; to be closed, or used in a ``with``. Nothing is asked yet.

    Raises ConfigError where model or key are missing.
    """
    return Client(spec, endpoint(spec), gate or open_gate(spec.llm), first_wait_s)


class Client:
    """One unit's line to the endpoint. One call at a time: it is not for several threads."""

    def __init__(self, spec: RunSpec, where: Endpoint, gate: Gate, first_wait_s: float = FIRST_WAIT_S) -> None:
        self.name = spec.agent.model or ""
        self.where = where
        self.usage = Usage()
        self.lost_s = 0.0
        self.wording = Wording(where.model, spec.llm)
        self.connection = Connection(where)
        self._llm, self._gate, self._first_wait_s = spec.llm, gate, first_wait_s
        self._shared = SharedIds()

    def __repr__(self) -> str:
        return f"Client({self.name!r}, {self.endpoint!r})"

    @property
    def endpoint(self) -> str:
        """The address, without what may be secret in it."""
        return self.where.shown

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.connection.close()

    def ask(
        self,
        messages: list[Message],
        *,
        tools: list[ToolDefinition] | None = None,
        temperature: float | None = None,
        timeout_s: float | None = None,
        stop: list[str] | None = None,
    ) -> Reply:
        """One answer, as ``Model.ask`` promises. A request may take ``llm.timeout`` seconds, all of them ``timeout_s``.

        An endpoint's silence is its failure: retried, then an InfraError. ``call_timeout`` is for what is not: a stream
        that still runs when the time of the call is over, and a call that had less time left than ``llm.timeout`` and
        met no failure before.
        """
        until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        call = _Call(messages, tools, temperature, stop, until)
        began, answering_s, counted = time.monotonic(), 0.0, self.usage.requests
        retrying = Retrying(
            wait=self._wait,
            stop=lambda state: not self._may_retry(call, state),
            retry=retry_if_exception_type(_PassingError),
            reraise=True,
        )
        try:
            answered = retrying(self._attempt, call)
            answering_s = answered.seconds
        except _PassingError as error:
            raise failed(str(error), call.requests, self.where) from None
        except NoReplyError:
            answering_s = time.monotonic() - began
            raise
        finally:
            self.lost_s += max(0.0, time.monotonic() - began - answering_s)
        try:
            metrics = metrics_of(answered, self._llm, call.requests)
            self._count(metrics)
            return reply_of(answered, self._shared.told(metrics, messages))
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # JSON of another shape
            if self.usage.requests < counted + call.requests:
                self.usage += Usage(requests=1, seconds=answered.seconds)
            what = f"the answer is no chat completion: {type(error).__name__}: {error}"
            raise failed(what, call.requests, self.where) from None

    def _attempt(self, call: _Call) -> Answered:
        """One request, or some: what the endpoint does not take is put in another way."""
        while True:
            body = self.wording.body(call.messages, tools=call.tools, temperature=call.temperature, stop=call.stop)
            try:
                return self._request(body, call)
            except RefusedError as error:
                means = meaning(error.refusal)
                if means is Meaning.PASSING:
                    raise _PassingError(str(error), error.told_s) from None
                if means is not Meaning.PARAMETER or not self.wording.learn(error.refusal, body):
                    field = self.wording.field_of(error.refusal, body)
                    raise refused(error.refusal, self.where, field) from None
            except DroppedError as error:
                if error.silent and error.sent and call.left <= 0 and not call.failures:
                    raise NoReplyError(StopReason.CALL_TIMEOUT, "the agent's time was over before an answer") from None
                raise _PassingError(str(error)) from None
            except EndlessError:
                raise NoReplyError(StopReason.CALL_TIMEOUT, "the answer did not end in time") from None

    def _request(self, body: dict[str, Any], call: _Call) -> Answered:
        with self._gate.turn(call.left):
            began = time.monotonic()
            try:
                answered = self.connection.send(body, max(min(self._llm.timeout, call.left), MOMENT_S))
            except (RefusedError, DroppedError, EndlessError) as error:
                if not isinstance(error, DroppedError) or error.sent:
                    call.requests += 1
                    self.usage += Usage(requests=1, seconds=time.monotonic() - began)
                raise
        call.requests += 1
        return answered

    def _wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        told_s = error.told_s if isinstance(error, _PassingError) else None
        return wait_s(state.attempt_number - 1, told_s, self._first_wait_s)

    def _may_retry(self, call: _Call, state: RetryCallState) -> bool:
        call.failures = state.attempt_number
        return call.failures <= self._llm.num_retries and state.upcoming_sleep < call.left

    def _count(self, metrics: Metrics) -> None:
        extra = metrics.extra or MetricsExtra()
        log.debug(
            "call of %s: %s tokens in, %s out, %s, request %s, %.2f s",
            self.name,
            metrics.prompt_tokens,
            metrics.completion_tokens,
            extra.finish_reason,
            extra.requests,
            extra.seconds,
        )
        self.usage += Usage(
            calls=1,
            requests=1,
            prompt_tokens=metrics.prompt_tokens or 0,
            cached_tokens=metrics.cached_tokens or 0,
            completion_tokens=metrics.completion_tokens or 0,
            reasoning_tokens=extra.reasoning_tokens or 0,
            cost_usd=metrics.cost_usd,
            seconds=extra.seconds,
        )


class _PassingError(Exception):
    """What may be otherwise the next time."""

    def __init__(self, what: str, told_s: float | None = None) -> None:
        self.told_s = told_s
        super().__init__(what)


@dataclass
class _Call:
    """A call while it is made."""

    messages: list[Message]
    tools: list[ToolDefinition] | None
    temperature: float | None
    stop: list[str] | None
    until: float = math.inf
    """Monotonic time at which it must be over."""
    requests: int = 0
    failures: int = 0
    """That may pass."""

    @property
    def left(self) -> float:
        return self.until - time.monotonic()
