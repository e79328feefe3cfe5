"""Pages of several runs: a comparison, with the overlap, cost and turns of all; the trend of a spec."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from math import ceil
from statistics import median
from typing import Any

from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.ids import is_run_id
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.reports.comparison.compare import compare, file_changes, is_same_spec
from swe_argo.steps.reports.comparison.record import Change, Comparison
from swe_argo.steps.reports.comparison.view import view_comparison
from swe_argo.steps.reports.figures.unit_row import UnitRow
from swe_argo.steps.reports.flaky_tests import known_doubts
from swe_argo.steps.reports.formatting import count, cut_line, decimal, make_visible, money
from swe_argo.steps.reports.reading import read_verdicts
from swe_argo.steps.reports.stored_run import NO_VERDICT, Standing
from swe_argo.steps.store import Store
from swe_argo.workflows.view.run_lines import RunLine
from swe_argo.workflows.view.run_states import RunState, RunStates
from swe_argo.workflows.view.tables import compare_url, run_url, unit_url

MAX_RUNS = 12
MAX_DIFFERING = 300
"""Maximum number of listed instances with different outcomes."""
COLUMNS = {"cost": "Cost", "each": "Cost per unit", "turns": "Turns, median"}
"""Key of a run's figures -> title of its column, which is hidden if no run has the figure."""
CACHE_SIZE = 8
"""Number of comparisons in the cache."""


class Comparisons:
    """A cache of pairwise comparisons."""

    def __init__(self, store: Store, states: RunStates) -> None:
        self._store, self._states = store, states
        self._cache: dict[tuple[str, str], tuple[RunState, RunState, Comparison]] = {}
        self._lock = threading.Lock()

    def context(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the template's variables. The last run is compared with the first, in the order of ``names``.

        Raises ConfigError if a name is invalid or unknown, or the runs are fewer than 2 or more than MAX_RUNS;
        InfraError if the store fails.
        """
        invalid = next((name for name in names if not is_run_id(name)), None)
        if invalid is not None:
            raise ConfigError(f"{invalid[:80]!r} is not a run id", field="run")
        names = list(dict.fromkeys(names))
        if not 2 <= len(names) <= MAX_RUNS:
            raise ConfigError(f"2 to {MAX_RUNS} runs can be compared: mark them in the list of runs", field="run")
        states = [self._states.read(name) for name in names]
        first = [{row.instance_id: row for row in state.rows if row.attempt == 1} for state in states]
        pair = (states[0], states[-1])
        figures = [_figures(state) for state in states]
        return {
            "runs": states,
            "swapped": compare_url(reversed(names)),
            "comparison": view_comparison(self._compare(*pair)),
            "hrefs": {line.instance_id: unit_url(pair[1].run_id, line.instance_id, 1) for line in first[-1].values()},
            "figures": figures,
            "figure_columns": [
                (name, title) for name, title in COLUMNS.items() if any(run_figures[name] for run_figures in figures)
            ],
            "matrix": [[_agreement(states, first, row, n) for n in range(len(states))] for row in range(len(states))],
            "differing": _differing(first),
            "shown": MAX_DIFFERING,
            "drawings": [
                *_drawing("Resolved by cost", "per unit", states, _unit_cost, money),
                *_drawing("Resolved by turns", "turns, median", states, _turns, decimal, round_end=ceil),
            ],
        }

    def _compare(self, before: RunState, after: RunState) -> Comparison:
        """Return the comparison of two runs, from the cache if neither state has changed since."""
        key = (before.run_id, after.run_id)
        with self._lock:
            cached = self._cache.get(key)
            if cached is None or cached[0] is not before or cached[1] is not after:
                old, new = (state.stored or read_verdicts(self._store, state.run_id) for state in (before, after))
                doubts = known_doubts(self._store, new.run.dataset.name)
                cached = (before, after, compare(old, new, doubts.describe))
                self._cache[key] = cached
                while len(self._cache) > CACHE_SIZE:
                    self._cache.pop(next(iter(self._cache)))
            return cached[2]


def _is_resolved(line: UnitRow) -> bool:
    return line.standing == Standing.RESOLVED


def _agreement(states: list[RunState], first: list[dict[str, UnitRow]], row: int, column: int) -> dict[str, Any]:
    """Return how far two runs agree on first attempts with a verdict in both; on the diagonal, a run's own figures."""
    row_lines, column_lines = first[row], first[column]
    pairs = [(line, column_lines[name]) for name, line in row_lines.items() if name in column_lines]
    judged = [pair for pair in pairs if not any(line.standing in NO_VERDICT for line in pair)]
    alike = sum(_is_resolved(line) == _is_resolved(line_b) for line, line_b in judged)
    only_row = sum(_is_resolved(line) and (row == column or not _is_resolved(line_b)) for line, line_b in judged)
    href = "" if row == column else compare_url((states[row].run_id, states[column].run_id))
    return {"judged": len(judged), "only_row": only_row, "alike": alike / len(judged) if judged else None, "href": href}


def _differing(first: list[dict[str, UnitRow]]) -> list[tuple[str, list[UnitRow | None]]]:
    names = dict.fromkeys(name for lines in first for name in lines)
    rows = [(name, [lines.get(name) for lines in first]) for name in names]
    return [
        (name, lines)
        for name, lines in rows
        if len({_is_resolved(line) for line in lines if line and line.standing not in NO_VERDICT}) > 1
    ]


def _figures(state: RunState) -> dict[str, str]:
    values = (state.summary.cost.usage.cost_usd, _unit_cost(state), _turns(state))
    texts = ["" if value is None else make(value) for make, value in zip((money, money, decimal), values, strict=True)]
    return {"href": run_url(state.run_id), **dict(zip(COLUMNS, texts, strict=True))}


def _unit_cost(state: RunState) -> float | None:
    cost, units = state.summary.cost.usage.cost_usd, state.summary.units
    return cost / units if cost is not None and units else None


def _turns(state: RunState) -> float | None:
    counts = [line.answers for line in state.rows if line.answers is not None]
    return median(counts) if counts else None


def _drawing(
    title: str,
    unit: str,
    states: list[RunState],
    measure: Callable[[RunState], float | None],
    format_value: Callable[[float], str],
    *,
    round_end: Callable[[float], float] = float,
) -> list[dict[str, Any]]:
    """Return a chart of the resolved rate against a measure, or nothing for fewer than two runs with both."""
    points = [
        (state, value, score.rate)
        for state in states
        if (value := measure(state)) is not None and (score := state.summary.score) and score.rate is not None
    ]
    if len(points) < 2:
        return []
    # The largest value is drawn at 90 % of the width.
    end = round_end((max(value for _, value, _ in points) or 1.0) / 0.9)
    dots = [
        {
            "name": make_visible(state.run_id),
            "href": run_url(state.run_id),
            "x": round(100 * value / end, 2),
            "y": round(100 - 100 * rate, 2),  # from the top
            "words": f"{format_value(value)}, {100 * rate:.1f} %",
        }
        for state, value, rate in points
    ]
    return [{"title": title, "unit": unit, "most": format_value(end), "dots": dots}]


VALUE_WIDTH = 60
MAX_CHANGES = 6
"""Maximum number of changes of one kind that are listed."""
KINDS = {"dataset": "dataset", "image": "images", "version": "code"}


def trend_context(file: RunFile, runs: list[tuple[RunLine, RunFile]]) -> dict[str, Any]:
    """Return the template's variables for the runs among ``runs`` with a score and the spec of ``file``."""
    same_spec = [(line, run_file) for line, run_file in runs if line.rate is not None and is_same_spec(run_file, file)]
    same_spec.sort(key=lambda pair: (pair[0].started, pair[0].run_id))
    lows, highs = [line.low for line, _ in same_spec], [line.high for line, _ in same_spec]
    # The axis shows 5 percentage points more than the confidence intervals of all runs.
    least, most = max(0.0, min(lows, default=0.0) - 0.05), min(1.0, max(highs, default=1.0) + 0.05)
    places = _places([line for line, _ in same_spec])
    nights = []
    for place, (line, run_file) in enumerate(same_spec):
        earlier = same_spec[place - 1] if place else None
        changes = file_changes(earlier[1], run_file) if earlier else []  # since the previous run
        heights = [100 * (most - value) / (most - least) for value in (line.rate or 0.0, line.low, line.high)]
        nights.append(
            {
                "line": line,
                "href": run_url(line.run_id),
                "x": places[place],
                **dict(zip(("y", "low", "high"), (round(height, 2) for height in heights), strict=True)),
                "changes": _words(changes),
                "kinds": [word for kind, word in KINDS.items() if any(change.kind == kind for change in changes)],
                "compare": compare_url((earlier[0].run_id, line.run_id)) if earlier else "",
            }
        )
    return {"nights": nights, "least": least, "most": most, "file": file}


def _places(lines: list[RunLine]) -> list[float]:
    """Return horizontal positions by start time; evenly spaced if a time is unknown."""
    try:
        times = [datetime.fromisoformat(line.started).timestamp() for line in lines]
    except ValueError:
        times = [float(n) for n in range(len(lines))]
    span = times[-1] - times[0] if times else 0.0
    return [round(100 * (time - times[0]) / span, 2) if span else 50.0 for time in times]


def _words(changes: list[Change]) -> list[str]:
    words, counts = [], Counter[str]()
    for change in changes:
        counts[change.kind] += 1
        if counts[change.kind] <= MAX_CHANGES:
            before, after = (cut_line(make_visible(value), VALUE_WIDTH) for value in (change.before, change.after))
            words.append(f"{make_visible(change.title)}: {before} → {after}")
    more = sum(number - MAX_CHANGES for number in counts.values() if number > MAX_CHANGES)
    return [*words, f"and {count(more, 'more change')}"] if more else words
