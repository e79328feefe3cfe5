"""What can go wrong between a client and envd, switched on by a test."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass
class LineFaults:
    dropped_before: int = 0
    """So many commands are not begun: the connection is dropped."""
    dropped_during: int = 0
    """So many commands go on when the connection is dropped."""
    dropped_after: int = 0
    """So many commands run, and their answer is dropped."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def takes(self, name: str) -> bool:
        """Whether a counted fault happens now."""
        with self.lock:
            remaining: int = getattr(self, name)
            setattr(self, name, max(0, remaining - 1))
            return remaining > 0
