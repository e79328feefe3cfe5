from __future__ import annotations

import pytest

from swe_argo.steps.agents.critic import AttemptResult, accepts, choose_best
from swe_argo.steps.contracts.trajectory import StopReason

PATCH = b"diff --git a/a b/a\n"


@pytest.mark.parametrize(
    ("critic", "reason", "patch", "accepted"),
    [
        ("finish_with_patch", StopReason.FINISHED, PATCH, True),
        ("finish_with_patch", StopReason.MAX_STEPS, PATCH, True),
        ("finish_with_patch", StopReason.FINISHED, b"\n", False),
        ("finish_with_patch", StopReason.ABSOLUTE_STEPS, PATCH, False),
        ("finish_with_patch", StopReason.TIMEOUT, PATCH, False),
        ("empty_patch", StopReason.TIMEOUT, PATCH, True),
        ("empty_patch", StopReason.FINISHED, b"", False),
        ("pass", StopReason.MALFORMED, b"", True),
    ],
)
def test_critics_accept_by_name(critic: str, reason: StopReason, patch: bytes, accepted: bool) -> None:
    assert accepts(critic, AttemptResult(reason, patch)) is accepted


@pytest.mark.parametrize(
    ("attempts", "index"),
    [
        ([(StopReason.FINISHED, PATCH), (StopReason.FINISHED, PATCH)], 1),  # the newest that was accepted
        ([(StopReason.FINISHED, PATCH), (StopReason.ABSOLUTE_STEPS, PATCH)], 0),
        ([(StopReason.ABSOLUTE_STEPS, PATCH), (StopReason.MALFORMED, PATCH)], 0),  # an error is worse than a limit
        ([(StopReason.ABSOLUTE_STEPS, PATCH), (StopReason.TIMEOUT, PATCH)], 1),  # none accepted: the newest
        ([(StopReason.ABSOLUTE_STEPS, PATCH), (StopReason.FINISHED, b"")], 0),  # but not for no patch at all
        ([(StopReason.MALFORMED, b""), (StopReason.REFUSAL, b"")], 1),
        ([(StopReason.FINISHED, b"")], 0),
    ],
)
def test_critic_chooses_best_attempt(attempts: list[tuple[StopReason, bytes]], index: int) -> None:
    assert choose_best("finish_with_patch", [AttemptResult(*attempt) for attempt in attempts]) == index
