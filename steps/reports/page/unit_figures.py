"""Figures of a unit for the sections of the report's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swe_argo.steps.reports.labels import STANDINGS, StandingLabel
from swe_argo.steps.reports.text.formatting import duration


@dataclass(frozen=True, slots=True)
class UnitFigures:
    """The figures of a unit that the page uses outside its table."""

    instance_id: str
    attempt: int
    href: str
    """Address of its details."""
    standing: str
    suspect: bool
    unconfirmed: str
    """Reason why a resolved unit is not confirmed; else empty."""
    seconds: Mapping[str, float]
    """Durations by stage."""
    total_s: float
    stop: str = ""
    """Stop reason of its agent; empty without an agent."""
    turns: int | None = None
    """Number of the agent's turns; None if unknown."""
    tokens: int = 0
    cost_usd: float | None = None
    failing_tests: Sequence[str] = ()
    """The first failing tests."""
    error: str = ""

    @property
    def label(self) -> StandingLabel:
        """Label of its standing."""
        return STANDINGS[self.standing]

    @property
    def time(self) -> str:
        """Duration of all stages and failed tries, as text."""
        return duration(self.total_s) if self.total_s else ""
