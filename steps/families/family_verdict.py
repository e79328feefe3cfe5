"""Results of a family's rule on a log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from swe_argo.steps.contracts.verdict import Finding


class StatusDifference(NamedTuple):
    """A test whose status differs from the required one."""

    reported: str | None
    """The status in the log; None if the log does not report the test."""
    expected: str | None
    """The required status; None if the test should not be in the log at all."""


class ListOutcome(NamedTuple):
    """The passed and failed tests of a list; other tests are in neither."""

    success: list[str]
    failure: list[str]


@dataclass(frozen=True)
class FamilyVerdict:
    """The verdict of a family's rule on one log."""

    resolved: bool
    statuses: dict[str, str]
    """Test -> status by the family's parser; empty if the log was rejected."""
    differences: dict[str, StatusDifference]
    lists: dict[str, ListOutcome] = field(default_factory=dict)
    """FAIL_TO_PASS and PASS_TO_PASS, for families that have them; empty if the log was rejected."""
    unreadable: str = ""
    """Why the log contains no results; empty if it does."""
    findings: list[Finding] = field(default_factory=list)
    """Reasons not to believe the log. The rule ignores them."""

    reports_failure: bool | None = None
    """Whether the log reports any test, listed or not, as failed; by default from ``statuses``."""
    exit_code_is_runners: bool = True
    """Whether the exit code is a test runner's, which is 0 if nothing failed."""
    partial_reward: float | None = None
    """The reward, if the rule has more values than resolved and unresolved."""

    def __post_init__(self) -> None:
        if self.reports_failure is None:
            object.__setattr__(self, "reports_failure", bool({"FAILED", "ERROR"} & set(self.statuses.values())))

    @property
    def reward(self) -> float:
        """The reward: 1.0 or 0.0, or the rule's own."""
        return float(self.resolved) if self.partial_reward is None else self.partial_reward
