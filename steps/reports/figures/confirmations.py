"""Figures about confirmations: how many resolved units are confirmed, and why the others are not."""

from __future__ import annotations

from collections import Counter

from swe_argo.steps.contracts.verdict import Confirmation, ConfirmationOutcome
from swe_argo.steps.reports.figures.summary import ConfirmationFigures, Unconfirmed
from swe_argo.steps.reports.stored_run import Standing, StoredUnit
from swe_argo.steps.reports.text.formatting import listing

NEVER_TRIED = "none"
WORDS = {each.value: each.value.replace("_", " ") for each in ConfirmationOutcome} | {NEVER_TRIED: "never tried"}
"""Outcome of a confirmation -> text for people."""


def confirmation_figures(units: list[StoredUnit]) -> ConfirmationFigures | None:
    """Return the figures of the resolved units; None if no unit has a confirmation."""
    if not any(confirmation_of(unit) for unit in units):
        return None
    resolved = [unit for unit in units if unit.standing is Standing.RESOLVED]
    tried = [confirmation for unit in resolved if (confirmation := confirmation_of(unit))]
    outcomes = Counter(map(_outcome, resolved))
    confirmed = outcomes[ConfirmationOutcome.CONFIRMED]
    return ConfirmationFigures(
        resolved=len(resolved),
        confirmed=confirmed,
        share=confirmed / len(resolved) if resolved else None,
        outcomes=dict(sorted(outcomes.items())),
        seconds=round(sum(one.seconds for unit in units if (one := confirmation_of(unit))), 3),
        unconfirmed=[_unconfirmed(unit) for unit in resolved if _outcome(unit) != ConfirmationOutcome.CONFIRMED],
        tests_with_site=sum(one.tests_with_site for one in tried),
        fail_to_pass=sum(one.fail_to_pass for one in tried),
    )


def unconfirmed_reasons(units: list[StoredUnit]) -> dict[str, int]:
    """Return the number of unconfirmed resolved units by outcome of the confirmation, without the suspect ones.

    Units of older releases count, too, whose integrity is ``ok`` whatever the result of their confirmation.
    """
    resolved = [unit for unit in units if unit.standing is Standing.RESOLVED]
    return dict(sorted(Counter(_outcome(unit) for unit in resolved if confirmation_note(unit)).items()))


def shared_reason(units: list[StoredUnit]) -> str:
    """Return why no resolved unit can be confirmed, if that is the same for all of several; else empty."""
    found = [confirmation_of(unit) for unit in units if unit.standing is Standing.RESOLVED]
    reasons = {one.reason if one and one.outcome is ConfirmationOutcome.UNAVAILABLE else "" for one in found}
    return reasons.pop() if len(found) > 1 and len(reasons) == 1 else ""


def format_confirmations(figures: ConfirmationFigures) -> str:
    """Return ``7 of 9 resolved confirmed, 1 partly and 1 contradicted; 30 of 34 FAIL_TO_PASS tests with a site``."""
    others = {name: number for name, number in figures.outcomes.items() if name != ConfirmationOutcome.CONFIRMED}
    counts = [f"{figures.confirmed:,} of {figures.resolved:,} resolved confirmed", *filter(None, [count_words(others)])]
    return "; ".join(filter(None, [", ".join(counts), describe_sites(figures.tests_with_site, figures.fail_to_pass)]))


def count_words(outcomes: dict[str, int]) -> str:
    """Return ``1 partly and 2 never tried``."""
    return listing([f"{number:,} {WORDS.get(name, name)}" for name, number in outcomes.items()])


def describe_sites(tests_with_site: int, fail_to_pass: int) -> str:
    """Return ``2 of 5 FAIL_TO_PASS tests with a site``; empty if no test was counted."""
    return f"{tests_with_site:,} of {fail_to_pass:,} FAIL_TO_PASS tests with a site" if fail_to_pass else ""


def confirmation_note(unit: StoredUnit) -> str:
    """Return why a unit is not confirmed, as ``describe_integrity``."""
    if unit.grade is None:
        return ""
    verdict, one = unit.grade.integrity.verdict, unit.grade.confirmation
    if one is None:
        return describe_integrity(verdict, None)
    return describe_integrity(verdict, one.outcome, one.tests_with_site, one.fail_to_pass, one.reason)


def describe_integrity(
    verdict: str, outcome: str | None, tests_with_site: int = 0, fail_to_pass: int = 0, reason: str = ""
) -> str:
    """Return ``confirmation: partly, 2 of 5 FAIL_TO_PASS tests with a site; REASON``.

    Empty if the unit is confirmed, needs no confirmation, or is suspect, for which the findings are the reason.
    ``outcome``: None if no confirmation was tried.
    """
    never_needed = outcome is None and verdict != "unconfirmed"
    if verdict == "suspect" or outcome == ConfirmationOutcome.CONFIRMED or never_needed:
        return ""
    word = WORDS.get(outcome or NEVER_TRIED, outcome or "")
    words = ", ".join(filter(None, [word, describe_sites(tests_with_site, fail_to_pass)]))
    return "; ".join(filter(None, [f"confirmation: {words}", reason]))


def is_general(unit: StoredUnit) -> bool | None:
    """Return whether a resolved unit passed neighbours, too; None if they were not tried."""
    one = confirmation_of(unit)
    return one.general if one and unit.standing is Standing.RESOLVED else None


def generality_note(unit: StoredUnit) -> str:
    """Return ``not general: REASON``; empty if the unit is general, or not tried."""
    one = confirmation_of(unit)
    return f"not general: {one.general_reason}" if one and is_general(unit) is False else ""


def confirmation_of(unit: StoredUnit) -> Confirmation | None:
    """Return the unit's confirmation, if one was tried."""
    return unit.grade.confirmation if unit.grade is not None else None


def _outcome(unit: StoredUnit) -> str:
    one = confirmation_of(unit)
    return one.outcome.value if one else NEVER_TRIED


def _unconfirmed(unit: StoredUnit) -> Unconfirmed:
    one = confirmation_of(unit)
    return Unconfirmed(
        instance_id=unit.instance_id,
        attempt=unit.attempt,
        outcome=one.outcome.value if one else None,
        reason=one.reason if one else WORDS[NEVER_TRIED],
        tests_with_site=one.tests_with_site if one else 0,
        fail_to_pass=one.fail_to_pass if one else 0,
        flipped=one.flipped if one else [],
    )
