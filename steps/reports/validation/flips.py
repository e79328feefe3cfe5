"""Upper bound on the chance that a listed test flips, from the gold runs of a validation."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from swe_argo.steps.contracts.validation import Validation
from swe_argo.steps.contracts.verdict import Outcome
from swe_argo.steps.reports.figures.stats import upper_bound

MIN_CHANCE = 0.001
"""Smallest chance that can be requested; it takes 2,995 runs."""


@dataclass(frozen=True)
class FlipBound:
    """The chance that a listed test flips, from its results in gold runs."""

    instance_id: str
    test: str
    """Empty if no listed test of the instance flipped."""
    flips: int
    """Number of runs with the less frequent result."""
    runs: int
    """Number of runs with a result of the test."""

    @property
    def chance(self) -> float:
        """The upper 95 % bound on the chance that the test flips in a run."""
        return upper_bound(self.flips, self.runs)

    @property
    def sentence(self) -> str:
        """The bound as a sentence."""
        bound = f"a listed test flips in at most {self.chance:.1%} of runs (upper 95 % bound"
        if not self.flips:
            return f"{bound}: no flip in {self.runs} gold runs)"
        return f"{bound}: {self.test} of {self.instance_id} flipped in {self.flips} of {self.runs} gold runs)"


def find_flip_bound(validation: Validation) -> FlipBound | None:
    """Return the bound of the worst listed test of all instances; None if no gold run has results."""
    bounds = []
    for instance in validation.instances:
        runs = sum(outcome in (Outcome.RESOLVED, Outcome.UNRESOLVED) for outcome in instance.gold)
        flips = {"": 0} | {test: min(times, runs - times) for test, times in instance.flaky_tests.items()}
        worst = max(flips, key=lambda test: flips[test])
        if runs:
            bounds.append(FlipBound(instance.instance_id, worst, flips[worst], runs))
    return max(bounds, key=lambda bound: bound.chance, default=None)


def count_needed_runs(chance: float, flips: int = 0) -> int:
    """Return the number of runs that are needed for the bound ``chance``, given the number of flips."""
    return next(runs for runs in count(flips + 1) if upper_bound(flips, runs) <= chance)
