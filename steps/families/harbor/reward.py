"""Parsing of a verifier's reward by Harbor's rule (harbor/verifier/verifier.py of 0.25.0)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field

FOLDER = "/logs/verifier"
TEXT, JSON = f"{FOLDER}/reward.txt", f"{FOLDER}/reward.json"
MAX_BYTES = 1 << 20
KEY = "reward"


@dataclass(frozen=True)
class WrittenReward:
    """The reward and further named numbers, or the reason why there is none."""

    value: float | None
    others: dict[str, float] = field(default_factory=dict)
    problem: str = ""


def parse_reward(text: bytes | None, numbers: bytes | None) -> WrittenReward:
    """Return the reward of ``reward.txt`` and ``reward.json``, each None if it does not exist. The second wins."""
    if numbers is not None:
        return _parse_numbers(numbers)
    if text is not None:
        return _parse_text(text)
    return _without_reward("the verifier wrote neither reward.json nor reward.txt")


def _parse_text(data: bytes) -> WrittenReward:
    if not data:
        return _without_reward("reward.txt is empty")
    try:
        value = float(data.decode())
    except ValueError:
        return _without_reward(f"reward.txt is not a number: {_abbreviate(data)}")
    if not math.isfinite(value):
        return _without_reward(f"reward.txt is not a finite number: {_abbreviate(data)}")
    return WrittenReward(value)


def _parse_numbers(data: bytes) -> WrittenReward:
    try:
        content = json.loads(data.decode())
    except (ValueError, RecursionError):
        return _without_reward(f"reward.json is not JSON: {_abbreviate(data)}" if data else "reward.json is empty")
    if not isinstance(content, dict):
        return _without_reward("reward.json is not an object of numbers")
    for name, value in content.items():
        if not isinstance(value, (int, float)) or not _is_finite(value):
            return _without_reward(f"reward.json: {name[:60]!a} is not a finite number")
    if KEY not in content:
        return _without_reward(f"reward.json has no {KEY!r}")
    others = {name: float(value) for name, value in content.items() if name != KEY}
    return WrittenReward(float(content[KEY]), others)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer of more than 308 digits
        return False


def _without_reward(problem: str) -> WrittenReward:
    return WrittenReward(None, problem=problem)


def _abbreviate(data: bytes) -> str:
    return repr(data[:60].decode(errors="replace"))
