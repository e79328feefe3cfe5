"""Refusals of new sandboxes for lack of room, shared by all processes of this machine that use one account."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class CreationRefusal:
    """A refusal: ``why``, in the service's words, ``since`` when, and ``until`` when not to ask again.

    Both times are seconds of this machine's clock (``time.time``).
    """

    why: str
    since: float
    until: float


class Refusals:
    """The last refusal, in a file; one not repeated for ``fresh_s`` is forgotten."""

    def __init__(self, file: Path, fresh_s: float, *, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._fresh_s = fresh_s
        self._clock = clock

    def refuse(self, pause_s: float, why: str) -> None:
        """Record a refusal, with a pause before the next request. Raises OSError."""
        now, earlier = self._clock(), self.latest()
        until = now + min(pause_s, self._fresh_s)
        refusal = CreationRefusal(why, earlier.since if earlier else now, max(until, earlier.until if earlier else 0.0))
        self._file.parent.mkdir(parents=True, exist_ok=True)
        own = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        own.write_text(json.dumps(asdict(refusal)), "utf-8")
        own.replace(self._file)

    def accept(self) -> None:
        """Record that the service has made a sandbox. Raises OSError."""
        self._file.unlink(missing_ok=True)

    def latest(self) -> CreationRefusal | None:
        """Return the last refusal, or None if a sandbox was made since or it is too old."""
        try:
            refusal = CreationRefusal(**json.loads(self._file.read_text("utf-8")))
            return refusal if abs(refusal.until - self._clock()) < self._fresh_s + 1 else None
        except (OSError, ValueError, TypeError):
            return None
