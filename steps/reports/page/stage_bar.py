"""Bar chart of the stages of one unit."""

from __future__ import annotations

from dataclasses import dataclass

from swe_argo.steps.reports.labels import STAGES, in_order
from swe_argo.steps.reports.page.charts import Segment, stacked
from swe_argo.steps.reports.stored_run import StoredUnit
from swe_argo.steps.reports.text.formatting import duration

MIN_S = 0.5
"""Minimum seconds of a stage in the bar."""


@dataclass(frozen=True, slots=True)
class StageBar:
    """Failed tries and results replaced by --redo, then the stages in order."""

    segments: list[Segment]
    words: list[tuple[str, str, str]]
    """(tone, name, time)."""
    whole: str


def stage_bar(unit: StoredUnit) -> StageBar | None:
    """Return the bar, or None if nothing took time."""
    seconds = unit.seconds
    earlier_parts = [
        ("past", "Failed tries", sum(failed_try.failure.seconds for failed_try in unit.tries)),
        ("past", "Replaced by --redo", sum(earlier.seconds for earlier in unit.redone)),
    ]
    stages = [(name.partition(".")[2] or name, STAGES.get(name, name), seconds[name]) for name in in_order(seconds)]
    parts = [part for part in (*earlier_parts, *stages) if part[2] >= MIN_S]
    if not parts:
        return None
    return StageBar(
        segments=stacked([(tone, f"{name} {duration(s)}", round(1000 * s), False) for tone, name, s in parts]),
        words=[(tone, name, duration(s)) for tone, name, s in parts],
        whole=duration(unit.total_s),
    )
