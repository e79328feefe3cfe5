"""Rate and concurrency limits of model requests: the runner's request limiter if present, else the unit's share."""

from __future__ import annotations

import math
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.run_spec import LlmSpec
from swe_argo.steps.errors import InfraError
from swe_argo.steps.settings import settings


class RequestLimiter(Protocol):
    """A limiter of model requests."""

    def turn(self, timeout_s: float) -> AbstractContextManager[None]:
        """Wait for a turn, at most ``timeout_s``, and hold it while the request runs. Raises InfraError on timeout."""


def open_limiter(llm: LlmSpec) -> RequestLimiter:
    """Return the runner's limiter named by the environment, or this unit's share of the limits, or no limit."""
    if (path := settings().model_limiter) is not None:
        return RunnerLimiter(path)
    units = settings().units
    if units is None or (llm.concurrency is None and llm.requests_per_minute is None):
        return Unlimited()
    return UnitShare(units, llm.concurrency, llm.requests_per_minute)


class Unlimited:
    """A limiter without limits."""

    def turn(self, timeout_s: float) -> AbstractContextManager[None]:  # noqa: ARG002 - the protocol's
        """Return at once."""
        return nullcontext()


class RunnerLimiter:
    """Client of the runner's limiter, a Unix stream socket: connect, read one byte (go), close after the request.

    The kernel closes the connection when a process dies, so a turn is never lost.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def turn(self, timeout_s: float) -> Iterator[None]:
        """Hold a turn. Raises InfraError if none comes within ``timeout_s`` or if the runner is gone."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            try:
                line.settimeout(None if math.isinf(timeout_s) else max(timeout_s, 0.001))
                line.connect(str(self._path))
                go = line.recv(1)
            except TimeoutError:
                raise _timeout_error(timeout_s) from None
            except OSError as error:
                raise InfraError(
                    FailureClass.MODEL, f"the runner's request limiter cannot be reached: {error}"
                ) from None
            if not go:
                raise InfraError(FailureClass.MODEL, "the runner closed its request limiter")
            yield


class UnitShare:
    """Limiter for one unit's share of the limits, which are divided by the number of units, without a central view.

    Requests are spaced. A share below one concurrent call is enforced by resting after each call: with a fifth of a
    call, the unit rests four times as long as its call took; time in tools counts as rest.
    """

    def __init__(
        self,
        units: float,
        concurrency: int | None,
        requests_per_minute: float | None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Seconds between the starts of requests, and seconds of rest per second of a call. None means no limit.
        self._spacing_s = 60.0 * units / requests_per_minute if requests_per_minute else 0.0
        self._rest_per_second = max(units / concurrency - 1.0, 0.0) if concurrency else 0.0
        self._sleep, self._clock = sleep, clock
        self._spacing = threading.Lock()
        # Number of concurrent calls: the whole calls of the share, at least one.
        self._at_once = threading.BoundedSemaphore(max(1, int(concurrency / units))) if concurrency else None
        # Earliest time of the next request. The random offset keeps units that start together from sending together.
        self._next = clock() + random.uniform(0, self._spacing_s)

    @contextmanager
    def turn(self, timeout_s: float) -> Iterator[None]:
        """Hold a turn. Raises InfraError if the wait would exceed ``timeout_s``."""
        waiting_since = self._clock()
        if self._at_once and not self._at_once.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX)):
            raise _timeout_error(timeout_s)
        try:
            with self._spacing:
                began = max(self._clock(), self._next)
                if began - waiting_since > timeout_s:
                    raise _timeout_error(timeout_s)
                self._next = began + self._spacing_s
            if (wait := began - self._clock()) > 0:
                self._sleep(wait)
            try:
                yield
            finally:
                finished = self._clock()
                with self._spacing:
                    self._next = max(self._next, finished + (finished - began) * self._rest_per_second)
        finally:
            if self._at_once:
                self._at_once.release()


def _timeout_error(timeout_s: float) -> InfraError:
    """Return the error of a request that got no turn in time."""
    return InfraError(
        FailureClass.MODEL,
        f"no request slot within {timeout_s:.0f} s: the endpoint's limits are too low for the number of units",
    )
