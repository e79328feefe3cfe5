"""Critics of iterative mode: decide whether an attempt is accepted, and which of several is best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swe_argo.steps.contracts.trajectory import StopReason

FINISHED_REASONS = (StopReason.FINISHED, StopReason.MAX_STEPS)
"""Stop reasons of an attempt whose agent declared itself done."""
ERROR_REASONS = frozenset(
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
"""Stop reasons of an attempt that failed, instead of finishing or reaching a set limit."""


@dataclass(frozen=True)
class AttemptResult:
    """Stop reason and patch of an attempt."""

    reason: StopReason
    patch: bytes


def accepts(critic: str, result: AttemptResult) -> bool:
    """Return whether the critic accepts an attempt, so that no other is needed (OpenHands' critics of these names).

    ``pass`` accepts all, ``empty_patch`` any patch, ``finish_with_patch`` the patch of an agent that finished.
    """
    has_patch = bool(result.patch.strip())
    match critic:
        case "pass":
            return True
        case "empty_patch":
            return has_patch
    return has_patch and result.reason in FINISHED_REASONS


def choose_best(critic: str, attempts: Sequence[AttemptResult]) -> int:
    """Return the index of the best attempt: an accepted one, else one without an error, else any (OpenHands).

    Among equals an attempt with a patch wins over one without, then the newest wins.
    """

    def rank(number: int) -> tuple[int, bool, int]:
        result = attempts[number]
        # 2: accepted; 1: not accepted, but ended without an error; 0: ended by an error.
        worth = 2 if accepts(critic, result) else 0 if result.reason in ERROR_REASONS else 1
        return worth, bool(result.patch.strip()), number

    return max(range(len(attempts)), key=rank)
