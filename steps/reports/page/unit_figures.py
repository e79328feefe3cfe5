"""What the parts of the report's page are told of a unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swe_argo.steps.reports.labels import STANDINGS, StandingLabel
from swe_argo.steps.reports.text.formatting import duration


@dataclass(frozen=True, slots=True)
class UnitFigures:
    """What the page says of a unit outside its table."""

    instance_id: str
    attempt: int
    href: str
    """Where more is said of it."""
    standing: str
    suspect: bool
    unconfirmed: str
    """Why it is not confirmed if it is resolved; else empty."""
    seconds: Mapping[str, float]
    """By stage."""
    total_s: float
    stop: str = ""
    """Why its agent stopped; empty where none worked."""
    turns: int | None = None
    """Answers of the agent; None where nobody knows."""
    tokens: int = 0
    cost_usd: float | None = None
    failing_tests: Sequence[str] = ()
    """The first of them, as ``first_failing``."""
    error: str = ""
    """As ``error_of``."""

    @property
    def label(self) -> StandingLabel:
        """What its standing is called."""
        return STANDINGS[self.standing]

    @property
    def time(self) -> str:
        """All stages and failed tries, in words."""
        return duration(self.total_s) if self.total_s else ""
