"""Refused starts while an account is full, shared by all processes of this machine that use the account."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class CreationRefusal:
    """A refused start: the service's reason, the time of the first refusal in a row, and the earliest next request.

    Both times are seconds of this machine's clock (``time.time``).
    """

    why: str
    since: float
    until: float


class Refusals:
    """The last refusal, in a file; it expires if not repeated within ``fresh_s`` after its pause."""

    def __init__(self, file: Path, fresh_s: float, *, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._fresh_s = fresh_s
        self._clock = clock

    def refuse(self, pause_s: float, why: str) -> None:
        """Record a refusal, with a pause of at most ``fresh_s`` before the next request. Raises OSError."""
        now, earlier = self._clock(), self.latest()
        until = now + min(pause_s, self._fresh_s)
        refusal = CreationRefusal(why, earlier.since if earlier else now, max(until, earlier.until if earlier else 0.0))
        self._file.parent.mkdir(parents=True, exist_ok=True)
        own = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        own.write_text(json.dumps(asdict(refusal)), "utf-8")
        own.replace(self._file)

    def accept(self) -> None:
        """Forget the refusal, as the service has created a sandbox. Raises OSError."""
        self._file.unlink(missing_ok=True)

    def latest(self) -> CreationRefusal | None:
        """Return the last refusal, or None if it expired or a sandbox was created since."""
        try:
            refusal = CreationRefusal(**json.loads(self._file.read_text("utf-8")))
            return refusal if abs(refusal.until - self._clock()) < self._fresh_s + 1 else None
        except (OSError, ValueError, TypeError):
            return None
