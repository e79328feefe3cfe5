from __future__ import annotations

import re

from swe_argo.steps.reports.figures.compute import summarise
from swe_argo.steps.reports.figures.summary import PassAtK
from swe_argo.steps.reports.page.attempts import attempt_grid, explain_two_rates, pass_curve
from swe_argo.steps.reports.reading import read_run
from swe_argo.steps.reports.stored_run import Standing
from swe_argo.steps.store import Store
from tests.steps.reports.page.figures_made_up import figures
from tests.steps.reports.synthetic import Synthetic


def passed(k: int, estimate: float) -> PassAtK:
    return PassAtK(k=k, instances=10, estimate=estimate, low=estimate - 0.1, high=estimate + 0.1)


def test_pass_curve_spans_first_to_most() -> None:
    curve = pass_curve([passed(1, 0.4), passed(2, 0.5), passed(4, 0.75)])
    assert curve
    assert curve.line == "0.0,60.0 33.33,50.0 100.0,25.0"
    assert curve.band.split()[:1] == ["0.0,50.0"]
    assert curve.band.split()[-1:] == ["0.0,70.0"]
    assert pass_curve([passed(1, 0.4)]) is None


def area(path: str) -> dict[tuple[int, int], int]:
    """Every square that a path of stretches covers, and how often."""
    squares: dict[tuple[int, int], int] = {}
    for x, y, length in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\3z", path):
        for n in range(int(length)):
            squares[int(x) + n, int(y)] = squares.get((int(x) + n, int(y)), 0) + 1
    return squares


def test_attempt_grid_covers_units() -> None:
    good, bad, none = Standing.RESOLVED, Standing.UNRESOLVED, Standing.FAILED
    rows = {"a": (bad, bad, bad), "b": (good, bad, good), "c": (good, good, good), "d": (bad, none, good)}
    units = [figures(key, n, some) for key, standings in rows.items() for n, some in enumerate(standings, 1)]
    grid = attempt_grid(units)
    assert grid
    assert (grid.width, grid.height) == (4, 3)
    squares = {tone: area(path) for tone, path in grid.cells}
    assert sorted(place for some in squares.values() for place in some) == [(x, y) for x in range(4) for y in range(3)]
    assert all(times == 1 for some in squares.values() for times in some.values())
    assert {place for place in squares["resolved"] if place[0] == 0} == {(0, 0), (0, 1), (0, 2)}
    assert squares["infra"] == {(2, 1): 1}
    assert grid.words == "1 resolved by every attempt with a verdict, 2 by some, 1 by none"
    assert [(key, [sign for _, sign in signs]) for key, signs in grid.differing] == [("b", [*"✓✗✓"]), ("d", [*"✗·✓"])]
    assert {name for _, name in grid.legend} == {"Resolved", "Unresolved", "Infrastructure"}


def test_attempt_grid_needs_attempts() -> None:
    assert attempt_grid([figures("a"), figures("b")]) is None


def test_differing_rates_are_explained(store: Store) -> None:
    Synthetic(instances=40, attempts=3, mix={"resolved": 3, "unresolved": 2, "failed": 1}).write(store)
    summary = summarise(read_run(store, "synthetic"))
    sentence = explain_two_rates(summary)
    assert "counts attempts without a verdict as not resolved" in sentence
    assert sentence.count(". ") == 0
    rate = summary.headline.rate
    assert rate is not None
    equal_rate = summary.pass_at[0].model_copy(update={"estimate": rate})
    assert explain_two_rates(summary.model_copy(update={"pass_at": [equal_rate]})) == ""
