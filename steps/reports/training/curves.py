"""Geometry of the curves over steps, in boxes of 100 by 100; every vertical axis includes 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from swe_argo.steps.reports.page.charts import columns

MIN_SMOOTHED = 20
"""Minimum number of steps for a smoothed curve."""
MAX_COLUMNS = 120
"""Maximum number of stacked columns in a chart; with more steps, each is the mean of several."""
_ROUND_NUMBERS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
"""Ends of an axis, times a power of ten."""


@dataclass(frozen=True, slots=True)
class Axis:
    """The horizontal axis of steps, common to all charts of a page."""

    first: int
    last: int

    def place(self, step: int) -> float:
        """Return the position, 0 to 100; a single step is in the middle."""
        return 100 * (step - self.first) / (self.last - self.first) if self.last > self.first else 50.0


@dataclass(frozen=True, slots=True)
class Curve:
    """The curve of a figure over steps; a path without points is empty."""

    name: str
    newest: str
    """Text of the last value."""
    words: str
    """Description of the chart for screen readers."""
    top: str
    bottom: str
    """Labels of the ends of the vertical axis."""
    zero: float | None
    """Position of 0 if it is not the bottom."""
    line: str
    mean: str
    """Path of the mean of the last ``mean_of(...)`` values."""
    dots: str
    bars: str
    """Path of the intervals."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Stacked parts of a sum over steps."""

    name: str
    newest: str
    words: str
    top: str
    width: int
    paths: list[tuple[str, str]]
    """(part, path), the lowest first."""


def draw_curve(
    name: str,
    values: Mapping[int, float | None],
    axis: Axis,
    format_value: Callable[[float], str],
    intervals: Mapping[int, tuple[float, float]] | None = None,
) -> Curve | None:
    """Return the curve of step -> value, with gaps for missing values; None without any value.

    ``intervals``: step -> ends of the value's interval, drawn as bars.
    """
    finite = {step: value for step, value in values.items() if value is not None and math.isfinite(value)}
    if not finite:
        return None
    ends = [end for pair in (intervals or {}).values() for end in pair]
    low, high = _limits([*finite.values(), *ends])

    def at(step: int, value: float) -> str:
        return f"{axis.place(step):.2f} {100 * ((high - value) / (high - low)):.2f}"

    steps = sorted(values)
    window = mean_of(len(finite))
    smooth = _trailing_means(finite, window) if window > 1 else {}
    first, last = min(finite), max(finite)
    least, most = min(finite.values()), max(finite.values())
    return Curve(
        name,
        format_value(finite[last]),
        f"{name}: {format_value(finite[first])} at step {first}, {format_value(finite[last])} at step {last}, "
        f"between {format_value(least)} and {format_value(most)}",
        format_value(high),
        format_value(low),
        round(100 * high / (high - low), 2) if low < 0 else None,
        _path(steps, finite, at),
        _path(steps, smooth, at),
        "" if smooth else "".join(f"M{at(step, value)}h0" for step, value in finite.items()),
        "".join(f"M{at(step, a)}L{at(step, b)}" for step, (a, b) in (intervals or {}).items()),
    )


def draw_columns(name: str, rows: Sequence[Mapping[str, float]], format_sum: Callable[[float], str]) -> Columns | None:
    """Return stacked columns, one per step of part -> value, with the parts in order of first occurrence."""
    parts = list(dict.fromkeys(part for row in rows for part in row))
    table = [
        [max(0.0, row.get(part, 0.0)) if math.isfinite(row.get(part, 0.0)) else 0.0 for part in parts] for row in rows
    ]
    if not any(map(sum, table)):
        return None
    bins = _binned(table, MAX_COLUMNS)
    paths, most = columns(bins)
    sums = [sum(row) for row in table]
    words = f"{name}: {format_sum(sums[-1])} at the last step, at most {format_sum(max(sums))}"
    return Columns(name, format_sum(sums[-1]), words, format_sum(most), len(bins), list(zip(parts, paths, strict=True)))


def mean_of(number: int) -> int:
    """Return the number of values per moving average for a curve of ``number`` values; 1: none is drawn."""
    return 1 if number < MIN_SMOOTHED else min(50, max(5, number // 20))


def _trailing_means(values: Mapping[int, float], window: int) -> dict[int, float]:
    """Return step -> mean of its value and the values before it, ``window`` values at most."""
    steps = sorted(values)
    means = {}
    for n, step in enumerate(steps):
        recent = [values[earlier] for earlier in steps[max(0, n + 1 - window) : n + 1]]
        means[step] = math.fsum(recent) / len(recent)
    return means


def _path(steps: Sequence[int], values: Mapping[int, float], at: Callable[[int, float], str]) -> str:
    """Return the SVG path through the points (coordinates by ``at``), with a gap for each missing value."""
    path, joined = [], False
    for step in steps:
        if step in values:
            path.append(f"{'L' if joined else 'M'}{at(step, values[step])}")
        joined = step in values
    return "".join(path)


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """Return round numbers that enclose the values and 0."""
    low, high = 0.0 - _round_up(-min(values)), _round_up(max(values))
    return (low, high) if low < high else (0.0, 1.0)


def _round_up(value: float) -> float:
    """Return the next round number; 0 for a value that is not positive."""
    if value <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((factor * power for factor in _ROUND_NUMBERS if factor * power >= value * (1 - 1e-9)), value)


def _binned(rows: Sequence[Sequence[float]], limit: int) -> list[list[float]]:
    """Return at most ``limit`` rows: each is the mean of as many consecutive ones as needed."""
    size = -(-len(rows) // limit)
    groups = [rows[n : n + size] for n in range(0, len(rows), size)]
    return [[math.fsum(values) / len(values) for values in zip(*part, strict=True)] for part in groups]
