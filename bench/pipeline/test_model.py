from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.pipeline.model import Costs, Shape, list_schedule, simulate

FREE = Costs(hand_over_s=0, shard_start_s=0, shard_end_s=0)
RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text("utf-8"))
"""A run on a real controller: what it was, when each unit began and ended, and what was measured of the rest."""

seconds = st.lists(st.floats(1, 1000), min_size=1, max_size=60)


@given(seconds, st.integers(1, 12))
def test_simulation_of_one_shard_is_ideal(durations: list[float], places: int) -> None:
    wide = Shape(places, shards=1, shard_units=len(durations), window=places)
    assert simulate(durations, wide, FREE).makespan_s == pytest.approx(list_schedule(durations, places))


@given(seconds, st.integers(1, 12))
def test_schedule_is_bounded_by_work(durations: list[float], places: int) -> None:
    shortest = max(sum(durations) / places, *durations)
    assert shortest <= list_schedule(durations, places) * (1 + 1e-9)
    narrow = Shape(places, shards=2, shard_units=7, window=3)
    assert shortest <= simulate(durations, narrow, FREE).makespan_s * (1 + 1e-9)


def test_narrow_windows_slow_simulation() -> None:
    durations = [10.0] * 40
    assert simulate(durations, Shape(8, 4, 10, 10), FREE).makespan_s == 50
    assert simulate(durations, Shape(8, 4, 10, 1), FREE).makespan_s == 100
    assert simulate(durations, Shape(8, 1, 10, 5), FREE).makespan_s == 80


def test_simulation_adds_costs() -> None:
    """Two shards of two units, one unit at a time: the second shard waits for the first."""
    costs = Costs(hand_over_s=1, shard_start_s=3, shard_end_s=5, run_start_s=7, run_end_s=11)
    simulated = simulate([10.0] * 4, Shape(1, 1, 2, 2), costs)
    assert simulated.makespan_s == 7 + 2 * (3 + 2 * (1 + 10) + 5) + 11
    assert simulated.busy == 40 / simulated.makespan_s


def test_simulation_counts_waiting_units() -> None:
    assert simulate([10.0] * 4, Shape(1, 1, 4, 4), FREE).waited == pytest.approx((3 + 2 + 1 + 0) / 4)
    assert simulate([10.0] * 4, Shape(4, 1, 4, 4), FREE).waited == 0


def test_simulation_matches_recorded_run() -> None:
    shape, costs = Shape(**RECORDED["shape"]), Costs(**RECORDED["costs"])
    durations = [end - begin for begin, end in RECORDED["units"]]
    real = max(end for _, end in RECORDED["units"]) - min(begin for begin, _ in RECORDED["units"])
    simulated = simulate(durations, shape, costs)
    # What comes before the first unit and after the last is no part of either.
    units_s = simulated.makespan_s - costs.run_start_s - costs.shard_start_s - costs.shard_end_s - costs.run_end_s
    assert units_s == pytest.approx(real, rel=0.05)
    blind = simulate(durations, shape, FREE).makespan_s
    assert abs(blind - real) > abs(units_s - real)
