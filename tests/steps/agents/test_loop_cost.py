"""What the loop itself takes, beside the model and the sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.steps.agents.at_once import TURNS, measure

MOST_MS = 10.0
"""CPU of the loop a turn."""
MOST_BYTES = 3_000_000
"""Of a trajectory of 100 turns beside its observations."""


@pytest.mark.parametrize("fn_calling", [True, False], ids=["functions", "text"])
def test_a_turn_of_the_loop_and_a_long_trajectory_take_little(tmp_path: Path, fn_calling: bool) -> None:
    cost = measure(tmp_path, fn_calling=fn_calling)
    assert cost.turns == TURNS + 3
    assert cost.ms_a_turn <= MOST_MS
    assert cost.bytes_beside <= MOST_BYTES
