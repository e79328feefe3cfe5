"""The page of one spec's runs over time: scores, and changes of dataset, images or code between the runs."""

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
NAMED = 6
"""Maximum number of changes of one kind that are listed."""
KINDS = {"dataset": "dataset", "image": "images", "version": "code"}


@dataclass(frozen=True)
class Night:
    """A run in the chart; coordinates in percent, from the top."""

    line: RunLine
    href: str
    x: float
    y: float
    low: float
    high: float
    changes: list[str]
    """Changes since the run before it."""
    kinds: list[str]
    """Kinds of those changes: dataset, images, code."""
    compare: str
    """Address of the comparison with the run before it."""


def trend_context(file: RunFile, known: list[tuple[RunLine, RunFile]]) -> dict[str, Any]:
    """Return the template's variables. ``known``: the runs of the store, filtered here by score and ``file``'s spec."""
    same = [(line, other) for line, other in known if line.rate is not None and is_same_spec(other, file)]
    same.sort(key=lambda pair: (pair[0].begun, pair[0].run_id))
    lows, highs = [line.low for line, _ in same], [line.high for line, _ in same]
    least, most = max(0.0, min(lows, default=0.0) - 0.05), min(1.0, max(highs, default=1.0) + 0.05)
    places = _places([line for line, _ in same])
    nights = []
    for place, (line, other) in enumerate(same):
        earlier = same[place - 1] if place else None
        changes = file_changes(earlier[1], other) if earlier else []
        heights = [100 * (most - value) / (most - least) for value in (line.rate or 0.0, line.low, line.high)]
        y, low, high = (round(height, 2) for height in heights)
        nights.append(
            Night(
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
    """Return horizontal positions by the start time of each run, or evenly spaced if a time is unknown."""
    try:
        times = [datetime.fromisoformat(line.begun).timestamp() for line in lines]
    except ValueError:
        times = [float(n) for n in range(len(lines))]
    span = times[-1] - times[0] if times else 0.0
    return [round(100 * (time - times[0]) / span, 2) if span else 50.0 for time in times]


def _words(changes: list[Change]) -> list[str]:
    """Return a sentence for each of the first changes of a kind, and the number of the others."""
    words, told = [], Counter[str]()
    for change in changes:
        told[change.kind] += 1
        if told[change.kind] <= NAMED:
            before, after = (cut_line(make_visible(value), VALUE_WIDTH) for value in (change.before, change.after))
            words.append(f"{make_visible(change.what)}: {before} → {after}")
    more = sum(number - NAMED for number in told.values() if number > NAMED)
    return [*words, f"and {count(more, 'more change')}"] if more else words
