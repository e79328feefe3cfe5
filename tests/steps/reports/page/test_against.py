from __future__ import annotations

import re

import pytest

from swe_argo.steps.reports.page.against import BINS, against_resolved
from swe_argo.steps.reports.stored_run import Standing
from tests.steps.reports.page.figures_made_up import figures


def test_charts_count_units_with_verdict() -> None:
    units = [
        figures(f"i{n}", standing=Standing.RESOLVED if n % 2 else Standing.UNRESOLVED, turns=n, cost_usd=n / 10)
        for n in range(1, 11)
    ]
    units.append(figures("never", standing=Standing.FAILED, turns=10_000, cost_usd=99.0))
    turns, cost = against_resolved(units)
    assert (turns.name, turns.medians, turns.most) == ("Turns", "median of resolved 5, others 6", 1)
    assert (cost.name, cost.medians) == ("Cost", "median of resolved $0.50, others $0.60")
    places = [float(x) for path in (turns.resolved, turns.others) for x in re.findall(r"M([\d.]+)", path)]
    assert len(places) == 10
    assert max(places) < BINS


@pytest.mark.parametrize(("most", "end", "bins"), [(7, "7", 7), (20, "20", 20), (37, "38", 19), (250, "260", 20)])
def test_chart_axis_ends_at_whole_turns(most: int, end: str, bins: int) -> None:
    units = [figures(f"i{n}", turns=most if n else 1) for n in range(9)]
    turns = against_resolved(units)[0]
    assert (turns.name, turns.end, turns.bins) == ("Turns", end, bins)


def test_charts_fall_back_to_tokens() -> None:
    units = [figures(f"i{n}", turns=7, tokens=1000 * n) for n in range(1, 9)]
    assert [chart.name for chart in against_resolved(units)] == ["Tokens"]
    assert against_resolved(units[:3]) == []
