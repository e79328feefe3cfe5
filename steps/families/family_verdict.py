"""What a family's rule says of a log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from swe_argo.steps.contracts.verdict import Finding


class StatusDifference(NamedTuple):
    """A test that did not come out as it must."""

    reported: str | None
    """None where the log says nothing of it."""
    expected: str | None
    """None where it should not be in the log at all."""


class ListOutcome(NamedTuple):
    """A list of tests, as the rule sorts it; what it counts as neither is in none of the two."""

    success: list[str]
    failure: list[str]


@dataclass(frozen=True)
class FamilyVerdict:
    """The verdict of a family's own rule on one log, and what was seen on the way."""

    resolved: bool
    statuses: dict[str, str]
    """Test -> status, as the family's parser reads the log; empty where the log was refused."""
    differences: dict[str, StatusDifference]
    lists: dict[str, ListOutcome] = field(default_factory=dict)
    """FAIL_TO_PASS and PASS_TO_PASS, for families that have them; empty where the log was refused."""
    unreadable: str = ""
    """Why the log holds no results at all; empty where it does."""
    findings: list[Finding] = field(default_factory=list)
    """Reasons not to believe the log. The rule does not look at them."""

    reports_failure: bool | None = None
    """Whether any test of the log, listed or not, is reported as failed; by default by ``statuses``."""
    exit_code_tells: bool = True
    """Whether the exit code is a runner's, which ends with 0 where nothing failed."""
    partial_reward: float | None = None
    """Where the rule knows more than resolved and not."""

    def __post_init__(self) -> None:
        if self.reports_failure is None:
            object.__setattr__(self, "reports_failure", bool({"FAILED", "ERROR"} & set(self.statuses.values())))

    @property
    def reward(self) -> float:
        """1.0 or 0.0, or what the rule gives."""
        return float(self.resolved) if self.partial_reward is None else self.partial_reward
