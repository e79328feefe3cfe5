"""What can go wrong at the test server, switched on by a test."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tests.steps.sandbox.envd.faults import LineFaults


@dataclass
class Faults(LineFaults):
    create_statuses: deque[int] = field(default_factory=deque)
    """HTTP statuses of the next creates; nothing is made by them."""
    refusal_headers: dict[str, str] = field(default_factory=dict)
    """What is said with them."""
    lost_create_answers: int = 0
    """So many creates make a sandbox and then drop the connection."""
    build_seconds: float = 0.05
    """So long a build of a template takes."""
    unbegun_builds: int = 0
    """So many builds are asked for, and the connection is dropped when they are to begin."""
    builds_at_a_time: int = 20
    """More are refused with 429."""
    build_statuses: deque[int] = field(default_factory=deque)
    """HTTP statuses of the next requests for a build."""
    refused_uploads: int = 0
    """So many uploads of files for templates are refused with 500."""
    upload_seconds: float = 0.0
    """So long each of them takes."""
    refused_snapshots: int = 0
    """So many snapshots fail."""
    only_old_routes: bool = False
    """The server makes and lists sandboxes by /sandboxes alone, as those of e2b 2.50."""

    def next_create_status(self) -> int | None:
        with self.lock:
            return self.create_statuses.popleft() if self.create_statuses else None
