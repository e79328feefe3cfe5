from __future__ import annotations

import pytest

from swe_argo.steps.contracts.verdict import (
    Confirmation,
    ConfirmationOutcome,
    GradeRecord,
    Integrity,
    RewardRule,
    decide_reward,
)
from tests.steps.agents.solved_units import grade

UNSTABLE = Confirmation(outcome=ConfirmationOutcome.NOT_CONFIRMED, is_unstable=True)
RULES: tuple[RewardRule, ...] = ("by-outcome", "zero", "drop", "keep")


def graded(integrity: str, confirmation: str | Confirmation | None) -> GradeRecord:
    """A resolved patch of reward 1."""
    if isinstance(confirmation, str):
        confirmation = Confirmation(outcome=ConfirmationOutcome(confirmation))
    parts = {"integrity": Integrity.model_validate({"verdict": integrity}), "confirmation": confirmation}
    return grade().model_copy(update={"reward": 1.0, **parts})


@pytest.mark.parametrize(
    ("integrity", "confirmation", "by_outcome"),
    [
        ("ok", "confirmed", 1),
        ("ok", None, 1),
        ("suspect", "contradicted", 0),
        ("ok", "contradicted", 0),  # of older releases
        ("suspect", "confirmed", 0),
        ("suspect", "not_confirmed", 0),
        ("suspect", None, 0),
        ("unconfirmed", "not_confirmed", None),
        ("unconfirmed", UNSTABLE, 1),
        ("unconfirmed", "partly", 1),
        ("unconfirmed", "unavailable", 1),
        ("unconfirmed", None, 1),
    ],
)
def test_reward_rules(integrity: str, confirmation: str | Confirmation | None, by_outcome: int | None) -> None:
    record = graded(integrity, confirmation)
    rewards = dict(zip(RULES, (by_outcome, 0, None, 1), strict=True))
    is_suspect, is_ok = record.is_suspect, integrity == "ok" and not record.is_suspect
    for suspect in RULES:
        for unconfirmed in RULES:
            reward = decide_reward(record.reward, *record.standing, suspect=suspect, unconfirmed=unconfirmed)
            assert reward == (1 if is_ok else rewards[suspect if is_suspect else unconfirmed])
