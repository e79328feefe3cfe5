"""What a plan at E2B allows, kept and counted by the test server (https://e2b.dev/docs/sandbox/rate-limits)."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque


class Window:
    """So many requests in any so many seconds, by when they arrive."""

    def __init__(self, number: int, seconds: float) -> None:
        self._seconds = seconds
        self._arrivals: deque[float] = deque(maxlen=number)
        self._lock = threading.Lock()

    def take(self) -> bool:
        with self._lock:
            now = time.monotonic()
            if len(self._arrivals) == self._arrivals.maxlen and now - self._arrivals[0] < self._seconds:
                return False
            self._arrivals.append(now)
            return True


class Limits:
    """``refused``: which limit -> how often it was met. ``most_running``: sandboxes at a time, at the most."""

    def __init__(self, creations_per_second: int = 1000, concurrent: int = 1000) -> None:
        self._creations = Window(creations_per_second, 1.0)
        self._lifecycle = Window(20_000, 30.0)
        self._operations = Window(40_000, 60.0)
        self._concurrent = concurrent
        self.refused: Counter[str] = Counter()
        self.most_running = 0

    def refuse_creation(self) -> str | None:
        return self._refuse("creation rate", self._creations)

    def refuse_lifecycle(self) -> str | None:
        return self._refuse("lifecycle API", self._lifecycle)

    def refuse_operation(self) -> str | None:
        return self._refuse("operations", self._operations)

    def refuse_place(self, running: int) -> str | None:
        """Whether one more is too many, in the service's words."""
        if running < self._concurrent:
            self.most_running = max(self.most_running, running + 1)
            return None
        self.refused["concurrency"] += 1
        return (
            f"you have reached the maximum number of concurrent E2B sandboxes ({self._concurrent}). If you need more, "
            "please contact us at 'https://e2b.dev/docs/getting-help'"
        )

    def _refuse(self, name: str, window: Window) -> str | None:
        if window.take():
            return None
        self.refused[name] += 1
        return f"{name}: too many requests"
