"""What can go wrong at the test server, switched on by a test."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tests.steps.sandbox.envd.faults import LineFaults


@dataclass
class Faults(LineFaults):
    codes: dict[str, deque[str]] = field(default_factory=dict)
    """Action -> the codes with which its next requests are refused; nothing is done by them."""
    statuses: deque[int] = field(default_factory=deque)
    """HTTP statuses of the next requests, which reach no action."""
    lost_start_answers: int = 0
    """So many starts make a sandbox and then drop the connection."""
    failing_starts: int = 0
    """So many sandboxes are FAILED when they are looked at."""
    looks_until_running: int = 0
    """How often a new sandbox is STARTING when it is looked at."""
    token_life_s: float = 3600.0

    def next_code(self, action: str) -> str | None:
        with self.lock:
            codes = self.codes.get(action)
            return codes.popleft() if codes else None

    def next_status(self) -> int | None:
        with self.lock:
            return self.statuses.popleft() if self.statuses else None
