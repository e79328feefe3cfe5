"""Size and time limits of a script's output: code in a sandbox may have replaced its shell."""

from __future__ import annotations

import time

ANSWER_BYTES = 32 << 20
"""Twice the most that any of our scripts prints."""
ANSWER_S = 60.0
"""Seconds beyond its ``wait_s`` that a script may take to print everything."""


class ScriptOutput:
    """The growing stdout of one script."""

    def __init__(self, wait_s: float) -> None:
        self.data = bytearray()
        self._until = time.monotonic() + wait_s + ANSWER_S

    def take(self, piece: bytes | bytearray | memoryview) -> None:
        """Add a piece. Raises ConnectionError if the output is too long or too late."""
        if len(self.data) + len(piece) > ANSWER_BYTES:
            raise ConnectionError(f"an exec printed more than {ANSWER_BYTES} bytes")
        if time.monotonic() > self._until:
            raise ConnectionError("an exec prints without end")
        self.data += piece
