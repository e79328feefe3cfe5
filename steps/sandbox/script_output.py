"""Size and time limits of a script's output, since code in a sandbox may have replaced its shell."""

from __future__ import annotations

import time

ANSWER_BYTES = 32 << 20
"""Maximum output, twice that of any of our scripts."""
ANSWER_S = 60.0
"""Seconds that a script may take beyond its ``wait_s``."""


class ScriptOutput:
    """The growing stdout of one script."""

    def __init__(self, wait_s: float) -> None:
        self.data = bytearray()
        self._until = time.monotonic() + wait_s + ANSWER_S

    def take(self, piece: bytes | bytearray | memoryview) -> None:
        """Add a piece. Raises ConnectionError if the output is too long or too late."""
        if len(self.data) + len(piece) > ANSWER_BYTES:
            raise ConnectionError(f"the exec printed more than {ANSWER_BYTES} bytes")
        if time.monotonic() > self._until:
            raise ConnectionError("the exec did not stop printing")
        self.data += piece
