"""What is said of verdicts that hang on tests known to flip."""

from __future__ import annotations

from swe_argo.steps.reports.figures.summary import FlippingUnit
from swe_argo.steps.reports.stored_run import StoredUnit
from swe_argo.steps.reports.text.formatting import count

NAMED = 3


def describe_flips(unit: StoredUnit) -> str:
    """``1 of its 2 failing tests is known to flip: test_x (seen 6, flipped 2)``; empty where none is."""
    if not unit.flips:
        return ""
    named = ", ".join(f"{flip.test} (seen {flip.seen}, flipped {flip.flipped})" for flip in unit.flips[:NAMED])
    more = f" and {len(unit.flips) - NAMED} more" if len(unit.flips) > NAMED else ""
    if unit.failing_tests == 1:
        return f"its failing test is known to flip: {named}"
    is_known = "is" if len(unit.flips) == 1 else "are"
    return f"{len(unit.flips)} of its {unit.failing_tests:,} failing tests {is_known} known to flip: {named}{more}"


def hangs_on_flips(unit: StoredUnit) -> bool:
    """Whether all that fails is known to flip: the same patch may be resolved tomorrow."""
    return bool(unit.flips) and len(unit.flips) == unit.failing_tests


def flipping_units(units: list[StoredUnit]) -> list[FlippingUnit]:
    """For programs: each unit of which a failing test is known to flip."""
    return [
        FlippingUnit(
            instance_id=unit.instance_id,
            attempt=unit.attempt,
            failing_tests=unit.failing_tests,
            flips={flip.test: (flip.seen, flip.flipped) for flip in unit.flips},
        )
        for unit in units
        if unit.flips
    ]


def doubt_flips(units: list[StoredUnit]) -> list[str]:
    """A sentence for the report's top, where verdicts hang on such tests alone."""
    hanging = [unit for unit in units if hangs_on_flips(unit)]
    if not hanging:
        return []
    return [f"{count(len(hanging), 'unit is', 'units are')} unresolved by nothing but tests that are known to flip."]
