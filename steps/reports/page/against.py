"""Charts of turns and cost by outcome: stacked columns of resolved and other units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from swe_argo.steps.reports.figures.stats import quantile
from swe_argo.steps.reports.page.charts import columns
from swe_argo.steps.reports.page.unit_figures import UnitFigures
from swe_argo.steps.reports.stored_run import NO_VERDICT, Standing
from swe_argo.steps.reports.text.formatting import money, tokens

BINS = 20
"""Maximum number of columns."""
MIN_UNITS = 5
"""Minimum number of units for a chart."""


@dataclass(frozen=True, slots=True)
class OutcomeChart:
    """A chart of one measure, split into resolved and other units."""

    name: str
    resolved: str
    others: str
    """SVG paths in a box of ``bins`` by 100."""
    most: int
    """Number of units in the highest column."""
    end: str
    """Label of the end of the axis, the 99th percentile; the last column includes all units beyond it."""
    medians: str
    bins: int = BINS
    """Number of columns; each covers a whole number of turns."""


def outcome_charts(units: Sequence[UnitFigures]) -> list[OutcomeChart]:
    """Return charts of turns, and of cost or else tokens, for units with a verdict, if the values differ."""
    judged = [unit for unit in units if unit.standing not in NO_VERDICT]
    priced = any(unit.cost_usd for unit in judged)
    charts = [
        _chart("Turns", judged, lambda unit: unit.turns, lambda turns: f"{turns:,.0f}", whole=True),
        _chart("Cost", judged, lambda unit: unit.cost_usd, money)
        if priced
        else _chart("Tokens", judged, lambda unit: unit.tokens or None, lambda used: tokens(int(used))),
    ]
    return [chart for chart in charts if chart]


def _chart(
    name: str,
    units: Sequence[UnitFigures],
    measure: Callable[[UnitFigures], float | None],
    format_value: Callable[[float], str],
    *,
    whole: bool = False,
) -> OutcomeChart | None:
    """Return the chart, or None if too few units have a value or all values are equal.

    Args:
        name: Name of the measure.
        units: Units with a verdict.
        measure: Function that returns a unit's value.
        format_value: Function that formats a value.
        whole: Whether the width of a column is a whole number.
    """
    pairs = [(value, unit.standing == Standing.RESOLVED) for unit in units if (value := measure(unit)) is not None]
    values = [value for value, _ in pairs]
    if len(values) < MIN_UNITS or min(values) == max(values):
        return None
    end = quantile(values, 0.99) or max(values)
    width = ceil(end / BINS) if whole else end / BINS
    number = ceil(end / width) if whole else BINS
    bins = [[0.0, 0.0] for _ in range(number)]
    for value, resolved in pairs:
        # A column includes its upper end; the last one includes all greater values, the first one 0.
        bins[min(number, max(1, ceil(value / width))) - 1][0 if resolved else 1] += 1
    paths, most = columns(bins)
    sides = {"resolved": [v for v, good in pairs if good], "others": [v for v, good in pairs if not good]}
    medians = ", ".join(f"{side} {format_value(quantile(group, 0.5))}" for side, group in sides.items() if group)
    return OutcomeChart(
        name, paths[0], paths[1], int(most), format_value(number * width), f"median of {medians}", number
    )
