"""Geometry of the curves over steps, in boxes of 100 by 100; every vertical axis includes 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from swe_argo.steps.reports.page.charts import columns

SMOOTHED_FROM = 20
"""Minimum number of steps for a smoothed curve over the single values."""
MOST_COLUMNS = 120
"""Maximum number of stacked columns in a chart; with more steps, each is the mean of several."""
_NICE = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


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
    """The curve of a figure over steps. Paths are empty if there is nothing to draw."""

    name: str
    newest: str
    """Its last value, as text."""
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
    say: Callable[[float], str],
    intervals: Mapping[int, tuple[float, float]] | None = None,
) -> Curve | None:
    """Return the curve of step -> value, with gaps for missing values; None without any value."""
    known = {step: value for step, value in values.items() if value is not None and math.isfinite(value)}
    if not known:
        return None
    ends = [end for pair in (intervals or {}).values() for end in pair]
    low, high = _limits([*known.values(), *ends])

    def at(step: int, value: float) -> str:
        return f"{axis.place(step):.2f} {100 * ((high - value) / (high - low)):.2f}"

    steps = sorted(values)
    window = mean_of(len(known))
    smooth = _trailing_means(known, window) if window > 1 else {}
    last = max(known)
    least, most = min(known.values()), max(known.values())
    return Curve(
        name,
        say(known[last]),
        f"{name}: {say(known[min(known)])} at step {min(known)}, {say(known[last])} at step {last}, "
        f"between {say(least)} and {say(most)}",
        say(high),
        say(low),
        round(100 * high / (high - low), 2) if low < 0 else None,
        _path(steps, known, at),
        _path(steps, smooth, at),
        "" if smooth else "".join(f"M{at(step, value)}h0" for step, value in known.items()),
        "".join(f"M{at(step, a)}L{at(step, b)}" for step, (a, b) in (intervals or {}).items()),
    )


def draw_columns(name: str, rows: Sequence[Mapping[str, float]], say: Callable[[float], str]) -> Columns | None:
    """Return stacked columns, one per step of part -> value, with the parts in order of first occurrence."""
    parts = list(dict.fromkeys(part for row in rows for part in row))
    table = [
        [max(0.0, row.get(part, 0.0)) if math.isfinite(row.get(part, 0.0)) else 0.0 for part in parts] for row in rows
    ]
    if not any(map(sum, table)):
        return None
    bins = _binned(table, MOST_COLUMNS)
    paths, most = columns(bins)
    sums = [sum(row) for row in table]
    words = f"{name}: {say(sums[-1])} at the last step, at most {say(max(sums))}"
    return Columns(name, say(sums[-1]), words, say(most), len(bins), list(zip(parts, paths, strict=True)))


def mean_of(number: int) -> int:
    """Return the window of the mean for a curve of ``number`` values; 1: no mean is drawn."""
    return 1 if number < SMOOTHED_FROM else min(50, max(5, number // 20))


def _trailing_means(values: Mapping[int, float], window: int) -> dict[int, float]:
    steps = sorted(values)
    means = {}
    for n, step in enumerate(steps):
        some = [values[one] for one in steps[max(0, n + 1 - window) : n + 1]]
        means[step] = math.fsum(some) / len(some)
    return means


def _path(steps: Sequence[int], values: Mapping[int, float], at: Callable[[int, float], str]) -> str:
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
    return next((one * power for one in _NICE if one * power >= value * (1 - 1e-9)), value)


def _binned(rows: Sequence[Sequence[float]], most: int) -> list[list[float]]:
    size = -(-len(rows) // most)
    some = [rows[n : n + size] for n in range(0, len(rows), size)]
    return [[math.fsum(values) / len(values) for values in zip(*part, strict=True)] for part in some]
