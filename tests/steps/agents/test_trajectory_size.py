"""How large a long trajectory is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.steps.agents.instant_answers import TURNS, measure

MOST_BYTES = 3_000_000
"""Of a trajectory of 100 turns beside its observations."""


@pytest.mark.parametrize("fn_calling", [True, False], ids=["functions", "text"])
def test_trajectory_overhead_is_small(tmp_path: Path, fn_calling: bool) -> None:
    cost = measure(tmp_path, fn_calling=fn_calling)
    assert cost.turns == TURNS + 3
    assert cost.bytes_beside <= MOST_BYTES
