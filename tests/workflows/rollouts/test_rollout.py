from __future__ import annotations

import pytest

from swe_argo.steps.contracts.verdict import Outcome
from swe_argo.workflows.rollouts.options import RolloutOptions
from swe_argo.workflows.rollouts.rollout import LostRolloutError, reward_of
from tests.steps.agents.solved_units import grade
from tests.steps.contracts.test_verdict import graded


def test_reward_follows_rollout_options() -> None:
    cheat, fallen = graded("suspect", "contradicted"), graded("unconfirmed", "not_confirmed")
    plain = RolloutOptions()
    assert (reward_of(cheat, plain), reward_of(cheat, RolloutOptions(suspect="keep"))) == (0, 1)
    assert reward_of(fallen, RolloutOptions(unconfirmed="zero")) == 0
    with pytest.raises(LostRolloutError, match=r"dropped: its verdict is unconfirmed \(confirmation: not_confirmed\)"):
        reward_of(fallen, plain)


def test_measured_reward_is_official() -> None:
    drop = RolloutOptions(suspect="drop", unconfirmed="drop")
    assert reward_of(graded("suspect", "contradicted"), drop, trains=False) == 1
    assert reward_of(graded("unconfirmed", None), drop, trains=False) == 1


def test_invalid_patch_lowers_reward() -> None:
    assert reward_of(grade(Outcome.PATCH_FAILED), RolloutOptions(invalid_patch_penalty=0.5)) == -0.5
