from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("numpy", reason="the extra tinker is not installed")

from swe_argo.steps.contracts.training import LossSpec
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.training.samples import SampledUnit
from swe_argo.steps.training.step_samples import advantages_of, groups_of

REWARDS = st.lists(st.floats(-100, 100), min_size=1, max_size=12)
PLAIN = LossSpec()


def unit(attempt: int, reward: float, **more: Any) -> SampledUnit:
    one = SampledUnit("r/a", "r", "a", attempt, reward, "resolved", "ok", "", StopReason.FINISHED, "m", 1.0)
    return replace(one, **more)


def units_of(rewards: list[float]) -> list[SampledUnit]:
    return [unit(attempt, reward) for attempt, reward in enumerate(rewards, 1)]


def advantages(units: list[SampledUnit], loss: LossSpec = PLAIN) -> list[float]:
    (group,) = groups_of(units, loss)
    return list(group.advantages_G.tolist())


@given(REWARDS)
def test_advantages_are_centred_rewards(rewards: list[float]) -> None:
    centred = advantages_of(rewards)
    assert math.isclose(centred.sum(), 0, abs_tol=1e-9)
    for (mine, reward), (other, its_reward) in zip(
        zip(centred, rewards, strict=True), zip(centred[1:], rewards[1:], strict=True), strict=False
    ):
        assert math.isclose(mine - other, reward - its_reward, abs_tol=1e-9)


@given(REWARDS, st.floats(-1000, 1000))
def test_advantages_ignore_an_offset(rewards: list[float], more: float) -> None:
    shifted = advantages_of([reward + more for reward in rewards])
    assert shifted.tolist() == pytest.approx(advantages_of(rewards).tolist(), abs=1e-9)


@given(REWARDS)
@example([0.0, 2.3e-311])
def test_scaled_advantages_have_unit_std(rewards: list[float]) -> None:
    centred = advantages_of(rewards, divide_by_std=True)
    assert all(map(math.isfinite, centred))
    assert math.isclose(centred.std(), 1 if centred.any() else 0, abs_tol=1e-6)


@given(st.floats(-100, 100), st.integers(1, 12), st.booleans())
def test_equal_rewards_have_no_advantage(reward: float, size: int, divide: bool) -> None:
    units = units_of([reward] * size)
    (group,) = groups_of(units, LossSpec(divide_by_std=divide))
    assert group.is_constant
    assert group.advantages_G.tolist() == [0] * size


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=8), st.lists(st.integers(0, 7), max_size=20))
def test_unit_of_many_samples_counts_once(rewards: list[float], again: list[int]) -> None:
    units = units_of(rewards)
    assert advantages([*units, *(units[place % len(units)] for place in again)]) == advantages(units)


@pytest.mark.parametrize("absent", [math.nan, math.inf])
def test_invalid_reward_is_absent(absent: float) -> None:
    assert advantages(units_of([1.0, 0.0, absent])) == [0.5, -0.5]


@pytest.mark.parametrize(
    ("integrity", "confirmation", "rules", "expected"),
    [
        ("suspect", "contradicted", {}, [2 / 3, -1 / 3, -1 / 3]),
        ("suspect", "", {"suspect": "drop"}, [0.5, -0.5]),
        ("suspect", "", {"suspect": "keep"}, [1 / 3, -2 / 3, 1 / 3]),
        ("unconfirmed", "not_confirmed", {}, [0.5, -0.5]),
        ("unconfirmed", "partly", {}, [1 / 3, -2 / 3, 1 / 3]),
        ("unconfirmed", "partly", {"unconfirmed": "zero"}, [2 / 3, -1 / 3, -1 / 3]),
    ],
)
def test_group_applies_reward_rules(
    integrity: str, confirmation: str, rules: dict[str, str], expected: list[float]
) -> None:
    units = [*units_of([1.0, 0.0]), unit(3, 1.0, integrity=integrity, confirmation=confirmation)]
    assert advantages(units, LossSpec.model_validate(rules)) == pytest.approx(expected)


def test_zeroed_rewards_are_constant() -> None:
    (group,) = groups_of([unit(1, 0.0), unit(2, 1.0, integrity="suspect")], PLAIN)
    assert group.is_constant


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("keep", [2 / 3, -1 / 3, -1 / 3]), ("drop", [0.5, -0.5]), ("no_gradient", [2 / 3, -1 / 3, 0])],
)
def test_limit_stopped_rule_is_applied(rule: Any, expected: list[float]) -> None:
    units = [*units_of([1.0, 0.0]), unit(3, 0.0, stop_reason=StopReason.ABSOLUTE_STEPS)]
    assert advantages(units, LossSpec(limit_stopped=rule)) == pytest.approx(expected)


def test_groups_keep_the_order_of_units() -> None:
    second_group = [replace(one, group="r/b", instance_id="b") for one in units_of([0.0, 4.0])]
    first, second = groups_of([second_group[0], *units_of([1.0, 0.0]), second_group[1]], PLAIN)
    assert (first.name, first.advantages_G.tolist()) == ("r/b", [-2, 2])
    assert (second.name, second.advantages_G.tolist()) == ("r/a", [0.5, -0.5])
