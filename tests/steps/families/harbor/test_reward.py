"""What is a reward and what is none, as harbor 0.25.0 reads the two files."""

from __future__ import annotations

import pytest

from swe_argo.steps.families.harbor.reward import WrittenReward, parse_reward


@pytest.mark.parametrize(
    ("text", "numbers", "value"),
    [
        (b"1", None, 1.0),
        (b" 0.5\n", None, 0.5),
        (b"0", b'{"reward": 0.25}', 0.25),
        (None, b'{"reward": true}', 1.0),
        (b"1", b'{"reward": 0}', 0.0),
    ],
)
def test_reward_is_one_finite_number(text: bytes | None, numbers: bytes | None, value: float) -> None:
    assert parse_reward(text, numbers).value == value


@pytest.mark.parametrize(
    ("text", "numbers", "problem"),
    [
        (None, None, "the verifier wrote neither reward.json nor reward.txt"),
        (b"", None, "reward.txt is empty"),
        (b"passed", None, "reward.txt is not a number: 'passed'"),
        (b"\xff", None, "reward.txt is not a number"),
        (b"nan", None, "reward.txt is not a finite number: 'nan'"),
        (b"1e999", None, "reward.txt is not a finite number"),
        (b"1", b"", "reward.json is empty"),
        (b"1", b"{", "reward.json is not JSON"),
        (b"1", b"[" * 100_000, "reward.json is not JSON"),
        (b"1", b"1", "reward.json is not an object of numbers"),
        (b"1", b'{"reward": "1"}', "reward.json: 'reward' is not a finite number"),
        (b"1", b'{"reward": 1, "style": NaN}', "reward.json: 'style' is not a finite number"),
        (b"1", b'{"style": 1}', "reward.json has no 'reward'"),
    ],
)
def test_invalid_reward_says_why(text: bytes | None, numbers: bytes | None, problem: str) -> None:
    written = parse_reward(text, numbers)
    assert written.value is None
    assert written.problem.startswith(problem)


def test_further_numbers_are_kept() -> None:
    assert parse_reward(None, b'{"reward": 1, "style": 0.5}') == WrittenReward(1.0, {"style": 0.5})
