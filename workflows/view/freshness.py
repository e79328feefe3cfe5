"""What is read of a store again and again: by all who look together, and not before it is old."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
AGAIN_S = 2.0
"""Before what was read is as old as this, the store is not asked again."""


class Reread(Generic[T]):
    """A value as the store has it now, or had it a moment ago."""

    def __init__(self, read: Callable[[], T], rest: int) -> None:
        """``rest``: times the seconds that reading took, until the next: a bucket is not worn out by who looks."""
        self._read, self._rest = read, rest
        self._lock = threading.Lock()
        self._value: T | None = None
        self._fresh_until = 0.0

    def read(self) -> T:
        """Raises what reading raises; the next who asks tries again."""
        with self._lock:
            if self._value is None or time.monotonic() >= self._fresh_until:
                began = time.monotonic()
                self._value = self._read()
                now = time.monotonic()
                self._fresh_until = now + self.keep_s(now - began)
            return self._value

    def keep_s(self, took_s: float) -> float:
        """How long a value is shown that took so long to read."""
        return max(AGAIN_S, self._rest * took_s)
