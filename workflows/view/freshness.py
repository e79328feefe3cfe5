"""What is read of a store again and again: by all who look together, and not before it is old."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

T = TypeVar("T")
AGAIN_S = 2.0
"""Before what was read is as old as this, the store is not asked again."""
PATIENCE_S = 0.5
"""Whoever looks waits so long for what is newer."""


class NotReadYetError(Exception):
    """Reading takes longer than whoever looks waits, and there is nothing older. Its text: how far it is."""


class Reread(Generic[T]):
    """A value as the store has it now, or had it a moment ago."""

    def __init__(
        self, read: Callable[[], T], rest: int, patience_s: float = PATIENCE_S, progress: Callable[[], str] = str
    ) -> None:
        """``rest``: times the seconds that reading took, until the next: a bucket is not worn out by who looks.

        ``progress`` says how far reading is.
        """
        self._read, self._rest, self._patience_s, self._progress = read, rest, patience_s, progress
        self._lock = threading.Lock()
        self._value: T | None = None
        self._reading: Future[T] | None = None
        self._fresh_until = 0.0

    def read(self, *, whole: bool = False) -> T:
        """What is newest; an older one where reading that again takes long, unless it is the ``whole`` answer.

        Raises what reading raises, and the next who asks tries again; NotReadYetError, but never to a ``whole`` one.
        """
        with self._lock:
            if self._reading is None and (self._value is None or time.monotonic() >= self._fresh_until):
                self._reading = Future()
                threading.Thread(target=self._work, args=(self._reading,), daemon=True).start()
            reading, older = self._reading, self._value
        if reading is not None:
            wait([reading], None if whole else self._patience_s)
            if reading.done():
                with self._lock:  # a failure is told once
                    self._reading = None if self._reading is reading else self._reading
                return reading.result()
        if older is None:
            raise NotReadYetError(self._progress())
        return older

    def keep_s(self, took_s: float) -> float:
        """How long a value is shown that took so long to read."""
        return max(AGAIN_S, self._rest * took_s)

    def _work(self, reading: Future[T]) -> None:
        began = time.monotonic()
        try:
            value = self._read()
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody asks
            with self._lock:
                self._value = None  # nothing hides that the store is gone
            reading.set_exception(error)
            return
        now = time.monotonic()
        with self._lock:
            self._value, self._fresh_until = value, now + self.keep_s(now - began)
            self._reading = None  # however long nobody looks now, it is not newer than that
        reading.set_result(value)
