"""``run_instance.log``: lines in the format of the harness' logger (swebench/logger.py), kept in memory."""

from __future__ import annotations

import time
from collections.abc import Callable


class InstanceLogWriter:
    """A log of lines ``2026-01-31 09:15:02,123 - INFO - message``; a message may span lines."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lines: list[str] = []

    def info(self, message: str) -> None:
        """Add a line of level INFO."""
        self._add("INFO", message)

    def error(self, message: str) -> None:
        """Add a line of level ERROR."""
        self._add("ERROR", message)

    def to_bytes(self) -> bytes:
        """Return the content of the file, in UTF-8."""
        return "".join(self._lines).encode(errors="replace")

    def _add(self, level: str, message: str) -> None:
        # The default format of logging.Formatter: local time, milliseconds after a comma.
        now = self._clock()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
        self._lines.append(f"{stamp},{int(now % 1 * 1000):03d} - {level} - {message}\n")
