"""Cache of values that are read repeatedly from a store, shared by all requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

T = TypeVar("T")
MIN_AGE_S = 2.0
"""Minimum age in seconds before a value is read again."""
PATIENCE_S = 0.5
"""Seconds that a request waits for a newer value."""


class NotReadYetError(Exception):
    """Raised if reading takes longer than a request waits and no older value exists; its text is the progress."""


class RefreshedValue(Generic[T]):
    """A value that is read again when it is outdated."""

    def __init__(
        self, read: Callable[[], T], rest: int, patience_s: float = PATIENCE_S, progress: Callable[[], str] = str
    ) -> None:
        """Create the value; after a read, wait ``rest`` times its duration before the next, to limit requests.

        ``progress`` returns the progress of the current read.
        """
        self._read, self._rest, self._patience_s, self._progress = read, rest, patience_s, progress
        self._lock = threading.Lock()
        self._value: T | None = None
        self._reading: Future[T] | None = None
        self._fresh_until = 0.0

    def read(self, *, whole: bool = False) -> T:
        """Return the newest value, or an older one if reading takes long; ``whole``: always wait for the newest.

        Raises the errors of reading, after which the next call reads again; NotReadYetError, unless ``whole``, if there
        is no older value.
        """
        with self._lock:
            if self._reading is None and (self._value is None or time.monotonic() >= self._fresh_until):
                self._reading = Future()
                threading.Thread(target=self._work, args=(self._reading,), daemon=True).start()
            reading, older = self._reading, self._value
        if reading is not None:
            wait([reading], None if whole else self._patience_s)
            if reading.done():
                with self._lock:  # a failure is raised only once
                    self._reading = None if self._reading is reading else self._reading
                return reading.result()
        if older is None:
            raise NotReadYetError(self._progress())
        return older

    def validity_s(self, took_s: float) -> float:
        """Return the seconds for which a value is valid that took ``took_s`` seconds to read."""
        return max(MIN_AGE_S, self._rest * took_s)

    def _work(self, reading: Future[T]) -> None:
        """Read the value in a thread and give it to all requests that wait for ``reading``."""
        began = time.monotonic()
        try:
            value = self._read()
        except BaseException as error:  # noqa: BLE001 - ``read`` raises it
            with self._lock:
                self._value = None  # an old value would hide that the store is gone
            reading.set_exception(error)
            return
        now = time.monotonic()
        with self._lock:
            self._value, self._fresh_until = value, now + self.validity_s(now - began)
            self._reading = None  # here, so that the age does not depend on the next request
        reading.set_result(value)
