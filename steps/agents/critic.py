"""Whether an attempt in iterative mode is good enough, and which of several is the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swe_argo.steps.contracts.trajectory import StopReason

FINISHED = (StopReason.FINISHED, StopReason.MAX_STEPS)
"""It said that it is done."""
ERRORS = frozenset(
    (
        StopReason.CALL_TIMEOUT,
        StopReason.CONTEXT_OVERFLOW,
        StopReason.REQUEST_REFUSED,
        StopReason.MALFORMED,
        StopReason.EMPTY_ANSWER,
        StopReason.REFUSAL,
        StopReason.CONTENT_FILTER,
        StopReason.SANDBOX_BROKEN,
        StopReason.AGENT_CRASHED,
        StopReason.AGENT_KILLED,
        StopReason.NO_CALLS,
        StopReason.ERROR_LOOP,
        StopReason.WAITING,
        StopReason.OUTPUT_FLOOD,
        StopReason.HOME_FLOOD,
        StopReason.INTERRUPTED,
    )
)
"""Something went wrong; it neither finished nor reached a limit that was set."""


@dataclass(frozen=True)
class AttemptResult:
    """What an attempt left."""

    reason: StopReason
    patch: bytes


def accepts(critic: str, left: AttemptResult) -> bool:
    """Whether no further attempt is needed (OpenHands' critics of these names)."""
    has_patch = bool(left.patch.strip())
    match critic:
        case "pass":
            return True
        case "empty_patch":
            return has_patch
    return has_patch and left.reason in FINISHED


def choose_best(critic: str, attempts: Sequence[AttemptResult]) -> int:
    """Index of the attempt to keep: one that is accepted, else one that ended without an error, else any (OpenHands).

    Among equals one with a patch is better than one without, then the newest is the best.
    """

    def rank(number: int) -> tuple[int, bool, int]:
        result = attempts[number]
        worth = 2 if accepts(critic, result) else 0 if result.reason in ERRORS else 1
        return worth, bool(result.patch.strip()), number

    return max(range(len(attempts)), key=rank)
