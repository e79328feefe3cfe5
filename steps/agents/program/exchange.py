"""Handling of an agent program's requests in threads: answered, recorded, counted, and refused beyond the limits."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from swe_argo.steps.agents.gate.channel import Gate
from swe_argo.steps.agents.gate.events import GateAnswer, GateRequest
from swe_argo.steps.agents.limits import Limits
from swe_argo.steps.agents.program.conversations import Conversations
from swe_argo.steps.agents.task import Forwards, Task
from swe_argo.steps.contracts.trajectory import EARLY_TURNS, ENDED_BY_ENDPOINT, StopReason
from swe_argo.steps.models.program_answers import Forwarded
from swe_argo.steps.models.program_requests import asks_model

AT_A_TIME = 16
FAILURES = 10
"""Consecutive failed calls after which the agent is considered stuck in a loop."""
GRACE_S = 10.0
"""Seconds for an agent to end by itself after a limit is reached; all further calls are refused."""

ENDING_S = 1.0
"""Interval between checks of an agent that is being ended."""


class Exchange:
    """Requests of one attempt. ``reason`` is set if one of our limits ends it."""

    def __init__(self, task: Task, forwarder: Forwards, instruction: str) -> None:
        self._task, self._forwarder = task, forwarder
        self._limits = Limits(task.spec, task.clock)
        self._conversations = Conversations(task.journal, instruction, forwarder.model)
        self._pool = ThreadPoolExecutor(AT_A_TIME, "model call")
        self._lock = threading.Lock()
        self._under_way = 0
        self._failed_calls = 0
        self._refused = 0
        self._kill_at: float | None = None
        self._failure: BaseException | None = None
        self._left = False
        self.asked = False
        """Whether the agent has called the model."""
        self.reason: StopReason | None = None
        self._answers = 0
        self.last_ended: StopReason | None = None
        """Stop reason of the newest call, if it was answered with an error."""
        self.last_detail = ""
        """The endpoint's message about it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._left = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def early_end(self) -> StopReason | None:
        """Return the endpoint's stop reason if it ended the newest call after at most one answer."""
        return self.last_ended if self._answers < EARLY_TURNS and self.last_ended in ENDED_BY_ENDPOINT else None

    @property
    def left_s(self) -> float:
        """Return the seconds until the next check, whatever the agent does."""
        with self._lock:
            if self._kill_at is None:
                return self._limits.left_s
            left_s = self._kill_at - time.monotonic()
            return left_s if left_s > 0 else ENDING_S

    def take(self, request: GateRequest, gate: Gate) -> None:
        """Answer a request in a thread."""
        self._pool.submit(self._answer, request, gate)

    def count_refused(self) -> None:
        """Count a request that the gateway refused; a loop only for an agent that never called the model."""
        with self._lock:
            self._refused += 1
            if not self.asked and self._refused >= FAILURES:
                self._stop(StopReason.ERROR_LOOP)

    def is_over(self) -> bool:
        """Return whether to end the agent now. Raises InfraError if the endpoint alone used up its time."""
        with self._lock:
            self._limits.lost(self._forwarder.lost_s)
            if self._failure is None and self.reason is None and self._limits.out_of_time:
                self._stop(StopReason.TIMEOUT)
            over = self._kill_at is not None and time.monotonic() >= self._kill_at
            return over or self._failure is not None

    def finish(self) -> None:
        """Wait for running calls, which are already paid for. Raises the first error of a call."""
        self._pool.shutdown()
        self._task.journal.set_usage(self._forwarder.usage)
        if self._failure is not None:
            raise self._failure

    def _answer(self, request: GateRequest, gate: Gate) -> None:
        try:
            answer = self._answered(request)
            gate.answer(request.number, GateAnswer(answer.status, answer.headers, answer.body))
        except BaseException as error:  # noqa: BLE001 - raised by finish, in the waiting thread
            with self._lock:
                if not self._left:
                    self._failure = self._failure or error
                    self._task.journal.set_usage(self._forwarder.usage)
            gate.kill()

    def _answered(self, request: GateRequest) -> Forwarded:
        if not asks_model(request.method, request.path):
            return self._forwarder.answer(request.method, request.path, request.headers, request.body)
        with self._lock:
            self.asked = True
            if (refusal := self._refuse(request.path)) is not None:
                return refusal
            self._under_way += 1
            left_s = self._limits.left_s
        try:
            answer = self._forwarder.answer(request.method, request.path, request.headers, request.body, left_s)
        finally:
            with self._lock:
                self._under_way -= 1
        with self._lock:
            self._record(answer)
        return answer

    def _refuse(self, path: str) -> Forwarded | None:
        limits = self._limits
        limits.lost(self._forwarder.lost_s)
        if self.reason is None:
            reached = limits.reached(self._forwarder.usage)
            if reached is None and limits.steps + self._under_way >= self._task.spec.ended_after:
                reached = StopReason.ABSOLUTE_STEPS
            if reached is not None:
                self._stop(reached, GRACE_S)
        if self.reason is None:
            return None
        return self._forwarder.refuse(path, f"the run's limit is reached: {self.reason.value.replace('_', ' ')}")

    def _record(self, answer: Forwarded) -> None:
        if self._left:
            return
        journal, call = self._task.journal, answer.call
        journal.usage = self._forwarder.usage
        if call is not None:
            for message in self._conversations.add(call):
                self._limits.count_message(message)
            if call.reply is not None:
                self._answers += 1
                self._limits.answered(call.reply.message, call.reply.metrics)
            self.last_ended, self.last_detail = call.ended, call.detail
        self._limits.lost(self._forwarder.lost_s)
        self._failed_calls = 0 if call is not None and call.reply is not None else self._failed_calls + 1
        if self._failed_calls >= FAILURES:
            self._stop(StopReason.ERROR_LOOP)

    def _stop(self, reason: StopReason, grace_s: float = 0.0) -> None:
        if self.reason is None:
            self.reason, self._kill_at = reason, time.monotonic() + grace_s
