"""That a service takes no more sandboxes at present, known to all processes of this machine that use one account."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class CreationRefusal:
    """The service takes no more at present: ``why``, in its words, ``since`` when, and not to be asked ``until``.

    Both are seconds of this machine's clock (``time.time``).
    """

    why: str
    since: float
    until: float


class Refusals:
    """The last one, in a file; what nobody repeated for ``fresh_s`` is forgotten."""

    def __init__(self, file: Path, fresh_s: float, *, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._fresh_s = fresh_s
        self._clock = clock

    def refuse(self, pause_s: float, why: str) -> None:
        """The service takes no more, and is not to be asked for so long. Raises OSError."""
        now, earlier = self._clock(), self.latest()
        until = now + min(pause_s, self._fresh_s)
        refusal = CreationRefusal(why, earlier.since if earlier else now, max(until, earlier.until if earlier else 0.0))
        self._file.parent.mkdir(parents=True, exist_ok=True)
        own = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        own.write_text(json.dumps(asdict(refusal)), "utf-8")
        own.replace(self._file)

    def accept(self) -> None:
        """The service has made one. Raises OSError."""
        self._file.unlink(missing_ok=True)

    def latest(self) -> CreationRefusal | None:
        """None where one was made since, or nobody has asked for long."""
        try:
            refusal = CreationRefusal(**json.loads(self._file.read_text("utf-8")))
            return refusal if abs(refusal.until - self._clock()) < self._fresh_s + 1 else None
        except (OSError, ValueError, TypeError):
            return None
