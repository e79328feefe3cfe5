"""Page of one spec's runs over time: scores, and changes of dataset, images or code between runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.reports.comparison.changes import file_changes, is_same_spec
from swe_argo.steps.reports.comparison.record import Change
from swe_argo.steps.reports.text.formatting import count
from swe_argo.steps.reports.text.visible import cut_line, make_visible
from swe_argo.workflows.view.addresses import compare_url, run_url
from swe_argo.workflows.view.run_lines import RunLine

VALUE_WIDTH = 60
MAX_CHANGES = 6
"""Maximum number of changes of one kind that are listed."""
KINDS = {"dataset": "dataset", "image": "images", "version": "code"}


@dataclass(frozen=True)
class TrendRun:
    """A run in the chart; coordinates in percent, from the top."""

    line: RunLine
    href: str
    x: float
    y: float
    low: float
    high: float
    changes: list[str]
    """Changes since the previous run."""
    kinds: list[str]
    """Kinds of those changes: dataset, images, code."""
    compare: str
    """Address of the comparison with the previous run."""


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
        changes = file_changes(earlier[1], run_file) if earlier else []
        heights = [100 * (most - value) / (most - least) for value in (line.rate or 0.0, line.low, line.high)]
        y, low, high = (round(height, 2) for height in heights)
        nights.append(
            TrendRun(
                line=line,
                href=run_url(line.run_id),
                x=places[place],
                y=y,
                low=low,
                high=high,
                changes=_words(changes),
                kinds=[word for kind, word in KINDS.items() if any(change.kind == kind for change in changes)],
                compare=compare_url((earlier[0].run_id, line.run_id)) if earlier else "",
            )
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
    """Return texts of the first changes of each kind, and the number of the others."""
    words, counts = [], Counter[str]()
    for change in changes:
        counts[change.kind] += 1
        if counts[change.kind] <= MAX_CHANGES:
            before, after = (cut_line(make_visible(value), VALUE_WIDTH) for value in (change.before, change.after))
            words.append(f"{make_visible(change.title)}: {before} → {after}")
    more = sum(number - MAX_CHANGES for number in counts.values() if number > MAX_CHANGES)
    return [*words, f"and {count(more, 'more change')}"] if more else words
