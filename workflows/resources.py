"""What each step may take: the only such numbers, for this machine and for every cluster."""

from __future__ import annotations

from dataclasses import dataclass

from steps.contracts.run import RunSpec

MAX_RESOURCE_FACTOR = 8.0
"""A sandbox that keeps running out gets at most this many times its limits (OpenHands: min(base * 2^failures, 8))."""

CREATE_S = 1800.0
"""Seconds to pull an image and start a sandbox."""


OUTAGE_S = 900.0
"""Seconds that a try is held back while its engine does not answer."""

OUTAGE_POLL_S = 2.0

STORE_OUTAGE_S = 600.0
"""Seconds that a finished step's files are offered to a store that fails."""


@dataclass(frozen=True)
class Retry:
    """Backoff between tries of a step after exit 75 or 76, or after it was killed."""

    limit: int
    first_s: float = 2.0
    factor: float = 2.0
    cap_s: float = 60.0

    def pause_s(self, failures: int) -> float:
        """Seconds to wait after this many failures (from 1)."""
        return float(min(self.first_s * self.factor ** (failures - 1), self.cap_s))


def retry(spec: RunSpec) -> Retry:
    """How often a step is tried again."""
    return Retry(limit=spec.retries)


def deadline_s(step: str, spec: RunSpec) -> float:
    """Seconds one try of a step may take in all: its sandbox, its work, and room for its own bookkeeping."""
    work = spec.agent.timeout_s if step == "solve" else spec.grading.timeout_s
    return CREATE_S + work + 600.0
