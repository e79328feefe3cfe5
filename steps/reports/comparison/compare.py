"""Comparison of two StoredRuns in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from statistics import fmean

from swe_argo.steps.reports.comparison.changes import find_changes, image_changes
from swe_argo.steps.reports.comparison.record import ChangedOutcome, Comparison, MeanRates, PairedTest, Unjudged
from swe_argo.steps.reports.figures.caveats import is_valid
from swe_argo.steps.reports.figures.compute import resolved_rate
from swe_argo.steps.reports.figures.confirmations import confirmation_note, generality_note
from swe_argo.steps.reports.figures.stats import mcnemar, mean_interval
from swe_argo.steps.reports.stored_run import Standing, StoredRun, StoredUnit

MAX_TESTS = 20
"""Maximum number of failing tests of an instance in the comparison."""


def _no_doubts(_: StoredUnit) -> str:
    return ""


def compare(before: StoredRun, after: StoredRun, doubts: Callable[[StoredUnit], str] = _no_doubts) -> Comparison:
    """Return ``after`` minus ``before``.

    Args:
        before: First run.
        after: Second run; instances are in the order of its plan.
        doubts: Returns the known doubts about a unit's verdict.
    """
    old, new = _first_attempts(before), _first_attempts(after)
    common = [instance for instance in new if instance in old]
    judged = [instance for instance in common if old[instance].grade is not None and new[instance].grade is not None]
    gained = [instance for instance in judged if not _is_resolved(old[instance]) and _is_resolved(new[instance])]
    losses = [instance for instance in judged if _is_resolved(old[instance]) and not _is_resolved(new[instance])]
    both = sum(_is_resolved(old[instance]) and _is_resolved(new[instance]) for instance in judged)
    pairs = [(old[instance], new[instance]) for instance in common]
    images, unknown = image_changes(before, after, pairs)
    return Comparison(
        against=before.run.run_id,
        against_created_at=before.run.created_at,
        run_id=after.run.run_id,
        created_at=after.run.created_at,
        changes=find_changes(before, after),
        images=images,
        images_unknown=unknown,
        common=len(common),
        before=resolved_rate([unit for unit, _ in pairs]),
        after=resolved_rate([unit for _, unit in pairs]),
        invalid=[run.run.run_id for run in (before, after) if not is_valid(run)],
        judged=len(judged),
        both=both,
        neither=len(judged) - both - len(gained) - len(losses),
        gained=[_changed_outcome(old[instance], new[instance], old[instance], doubts) for instance in gained],
        lost=[_changed_outcome(old[instance], new[instance], new[instance], doubts) for instance in losses],
        without_verdict=[_unjudged(unit, now) for unit, now in pairs if unit.grade is None or now.grade is None],
        only_before=[instance for instance in old if instance not in new],
        only_after=[instance for instance in new if instance not in old],
        test=_paired_test(len(gained), len(losses)),
        mean=_means(before, after),
    )


def _first_attempts(run: StoredRun) -> dict[str, StoredUnit]:
    return {unit.instance_id: unit for unit in run.attempt(1)}


def _is_resolved(unit: StoredUnit) -> bool:
    return unit.standing is Standing.RESOLVED


def _changed_outcome(
    old: StoredUnit, new: StoredUnit, unresolved: StoredUnit, doubts: Callable[[StoredUnit], str]
) -> ChangedOutcome:
    """Return a gained or lost instance; ``unresolved`` is that one of ``old`` and ``new`` that is not resolved."""
    assert old.grade is not None
    assert new.grade is not None
    return ChangedOutcome(
        instance_id=new.instance_id,
        before=old.standing.value,
        after=new.standing.value,
        failing_tests=unresolved.grade.failing_tests[:MAX_TESTS] if unresolved.grade else [],
        failing=unresolved.failing_tests,
        doubt="; ".join(filter(None, [doubts(unresolved), _integrity(new if unresolved is old else old)])),
        same_patch=old.grade.patch_sha256 == new.grade.patch_sha256,
    )


def _integrity(resolved: StoredUnit) -> str:
    """Return why the verdict of the resolved unit may be wrong; empty if there is no reason."""
    note = "resolved, but suspect" if resolved.suspect else confirmation_note(resolved)
    return "; ".join(filter(None, [note, generality_note(resolved)]))


def _unjudged(old: StoredUnit, new: StoredUnit) -> Unjudged:
    """Return an instance without a verdict in one run, with the newest failure."""
    failure = new.failure or old.failure
    return Unjudged(
        instance_id=new.instance_id,
        before=old.standing.value,
        after=new.standing.value,
        reason=f"{failure.failure_class.value}: {failure.reason}" if failure else "",
    )


def _paired_test(gains: int, losses: int) -> PairedTest:
    p, p_mid = mcnemar(gains, losses)
    return PairedTest(gained=gains, lost=losses, p=p, p_mid=p_mid)


def _means(before: StoredRun, after: StoredRun) -> MeanRates | None:
    """Return the mean share of resolved attempts per instance, paired (Miller 2024, arXiv 2411.00640, section 4)."""
    if len(before.attempts) < 2 and len(after.attempts) < 2:
        return None
    old, new = _shares(before), _shares(after)
    common = [instance for instance in new if instance in old]
    if not common:
        return None
    differences = [new[instance] - old[instance] for instance in common]
    low, high = mean_interval(differences)
    return MeanRates(
        instances=len(common),
        before=fmean(old[instance] for instance in common),
        after=fmean(new[instance] for instance in common),
        difference=fmean(differences),
        low=low,
        high=high,
    )


def _shares(run: StoredRun) -> dict[str, float]:
    """Return, by instance, the share of its attempts with a verdict that are resolved."""
    verdicts: dict[str, list[bool]] = defaultdict(list)
    for unit in run.units:
        if unit.grade is not None:
            verdicts[unit.instance_id].append(_is_resolved(unit))
    return {instance: fmean(resolved) for instance, resolved in verdicts.items()}
