"""Cross table of outcomes and stop reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from swe_argo.steps.reports.labels import STANDINGS, STOPS, StandingLabel
from swe_argo.steps.reports.page.unit_figures import UnitFigures


@dataclass(frozen=True, slots=True)
class CrossCell:
    """Units of an outcome, a stop reason, or both."""

    number: int
    narrow: str
    """The filters of the units table that select these units, as a query."""
    weight: int
    """Share of all units in percent, for the cell's colour."""


@dataclass(frozen=True, slots=True)
class CrossTable:
    """Rows are outcomes in their fixed order; columns are stop reasons, the most frequent first."""

    reasons: list[tuple[str, CrossCell]]
    rows: list[tuple[StandingLabel, CrossCell, list[CrossCell]]]
    """(outcome, total, one cell for each reason)."""


def cross_stops(units: Sequence[UnitFigures]) -> CrossTable | None:
    """Return the table, or None if no agent was run."""
    pairs = Counter((unit.standing, unit.stop) for unit in units if unit.stop)
    if not pairs:
        return None
    total = sum(pairs.values())
    by_reason: Counter[str] = Counter()
    for (_, reason), number in pairs.items():
        by_reason[reason] += number
    reasons = sorted(by_reason, key=lambda reason: (-by_reason[reason], reason))

    def cell(number: int, **filters: str) -> CrossCell:
        return CrossCell(number, urlencode(filters), round(100 * number / total))

    rows = []
    for standing, label in STANDINGS.items():
        cells = [cell(pairs[standing, reason], outcome=standing, stop=reason) for reason in reasons]
        if number := sum(column.number for column in cells):
            rows.append((label, cell(number, outcome=standing), cells))
    names = [STOPS[reason].name if reason in STOPS else reason for reason in reasons]
    return CrossTable(
        [(name, cell(by_reason[reason], stop=reason)) for name, reason in zip(names, reasons, strict=True)], rows
    )
