"""The time of one unit as one bar of its stages."""

from __future__ import annotations

from dataclasses import dataclass

from swe_argo.steps.reports.labels import STAGES, in_order
from swe_argo.steps.reports.page.charts import Segment, stacked
from swe_argo.steps.reports.stored_run import StoredUnit
from swe_argo.steps.reports.text.formatting import duration

LEAST_S = 0.5
"""Minimum seconds of a stage in the bar."""


@dataclass(frozen=True, slots=True)
class StageBar:
    """Stages in order, after the failed tries and the results replaced by --redo."""

    segments: list[Segment]
    words: list[tuple[str, str, str]]
    """(tone, name, time)."""
    whole: str


def stage_bar(unit: StoredUnit) -> StageBar | None:
    """Return the bar, or None if nothing took time."""
    seconds = unit.seconds
    past = [
        ("past", "Failed tries", sum(one.failure.seconds for one in unit.tries)),
        ("past", "Done again since", sum(earlier.seconds for earlier in unit.redone)),
    ]
    stages = [(name.partition(".")[2] or name, STAGES.get(name, name), seconds[name]) for name in in_order(seconds)]
    parts = [part for part in (*past, *stages) if part[2] >= LEAST_S]
    if not parts:
        return None
    return StageBar(
        segments=stacked([(tone, f"{name} {duration(s)}", round(1000 * s), False) for tone, name, s in parts]),
        words=[(tone, name, duration(s)) for tone, name, s in parts],
        whole=duration(unit.total_s),
    )
