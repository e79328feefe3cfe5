"""What the counter-proofs of a run come to: how much of what is resolved was confirmed, and what was not, with why."""

from __future__ import annotations

from collections import Counter

from steps.contracts.verdict import Confirmation, CounterProof
from steps.reports.figures.summary import CounterProofFigures, Unconfirmed
from steps.reports.stored_run import Standing, StoredUnit
from steps.reports.text.formatting import listing

WORDS = {
    Confirmation.CONFIRMED: "confirmed",
    Confirmation.CONTRADICTED: "contradicted",
    Confirmation.FLAKY: "flaky",
    Confirmation.NOT_CONFIRMED: "not finished",
    Confirmation.UNAVAILABLE: "cannot be made",
}
NONE = "none was made"


def counter_proofs(units: list[StoredUnit]) -> CounterProofFigures | None:
    """The figures of a run's resolved units; None where no unit has a counter-proof."""
    if not any(proof_of(unit) for unit in units):
        return None
    resolved = [unit for unit in units if unit.standing is Standing.RESOLVED]
    outcomes = Counter(proof.outcome.value if (proof := proof_of(unit)) else "none" for unit in resolved)
    confirmed = outcomes[Confirmation.CONFIRMED]
    return CounterProofFigures(
        resolved=len(resolved),
        confirmed=confirmed,
        share=confirmed / len(resolved) if resolved else None,
        outcomes=dict(sorted(outcomes.items())),
        seconds=round(sum(proof.seconds for unit in units if (proof := proof_of(unit))), 3),
        unconfirmed=[_unconfirmed(unit) for unit in resolved if not _confirmed(unit)],
    )


def format_confirmations(figures: CounterProofFigures) -> str:
    """In words: ``9 of 12 resolved units confirmed by a counter-proof, 2 flaky and 1 not finished``."""
    names = {each.value: word for each, word in WORDS.items()} | {"none": NONE}
    others = [f"{n:,} {names[name]}" for name, n in figures.outcomes.items() if name != Confirmation.CONFIRMED]
    sentence = f"{figures.confirmed:,} of {figures.resolved:,} resolved confirmed by a counter-proof"
    return f"{sentence}: {listing(others)}" if others else sentence


def confirmation_note(unit: StoredUnit) -> str:
    """Of a unit whose counter-proof did not confirm it: what it came to, and why; a contradiction is a finding."""
    proof = proof_of(unit)
    return describe_confirmation(proof.outcome, proof.reason) if proof else ""


def describe_confirmation(outcome: str, reason: str) -> str:
    """The same of what a counter-proof came to."""
    if outcome in (Confirmation.CONFIRMED, Confirmation.CONTRADICTED):
        return ""
    return f"counter-proof, {WORDS[Confirmation(outcome)]}: {reason}"


def proof_of(unit: StoredUnit) -> CounterProof | None:
    """The unit's counter-proof, where it has one."""
    return unit.grade.counter_proof if unit.grade is not None else None


def _confirmed(unit: StoredUnit) -> bool:
    proof = proof_of(unit)
    return proof is not None and proof.outcome is Confirmation.CONFIRMED


def _unconfirmed(unit: StoredUnit) -> Unconfirmed:
    proof = proof_of(unit)
    return Unconfirmed(
        instance_id=unit.instance_id,
        attempt=unit.attempt,
        outcome=proof.outcome.value if proof else None,
        reason=proof.reason if proof else NONE,
        flipped=proof.flipped if proof else [],
    )
