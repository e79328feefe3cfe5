"""Results of a run's canary: do the reference patches pass on its machines?"""

from __future__ import annotations

from swe_argo.steps.contracts.data import Plan, Unit
from swe_argo.steps.contracts.failure import Failure
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.reports.stored_run import CanaryResult
from swe_argo.steps.reports.text.formatting import count
from swe_argo.steps.store import Store


def read_canary(store: Store, plan: Plan) -> CanaryResult | None:
    """Return the canary's verdicts so far; None if the run has no canary. Raises InfraError."""
    if not plan.canary:
        return None
    names = {unit.instance_id: key(GradeRecord, plan.run_id, unit.instance_id, unit.attempt) for unit in plan.canary}
    contents = store.get_many(names.values())
    grades = {one: GradeRecord.from_bytes(contents[name]) for one, name in names.items() if name in contents}
    return CanaryResult(
        resolved=[one for one, grade in grades.items() if grade.resolved],
        failed={one: grade.outcome.value for one, grade in grades.items() if not grade.resolved},
        without_verdict={
            unit.instance_id: _failure(store, plan.run_id, unit)
            for unit in plan.canary
            if unit.instance_id not in grades
        },
        grades=list(grades.values()),
    )


def _failure(store: Store, run_id: str, unit: Unit) -> str:
    """Return why the unit has no verdict: its newest failure, or that it was not run."""
    folder = key(GradeRecord, run_id, unit.instance_id, unit.attempt).removesuffix(GradeRecord.file)
    names = [name for name in store.keys(f"{folder}tries/") if name.endswith(f"/{Failure.file}")]
    failures = [Failure.from_bytes(data) for data in store.get_many(names).values()]
    newest = max(failures, key=lambda failure: failure.occurred_at, default=None)
    return f"{newest.failure_class.value}: {newest.reason}" if newest else "not run"


def describe_canary(result: CanaryResult) -> str:
    """Return the result as a sentence."""
    number = len(result.resolved) + len(result.failed) + len(result.without_verdict)
    if result.failed:
        named = ", ".join(f"{one} ({outcome})" for one, outcome in result.failed.items())
        return (
            f"The machines are not to be believed: the reference patch failed in {len(result.failed)} of {number} "
            f"canary instances: {named}."
        )
    if result.without_verdict:
        named = ", ".join(f"{one} ({reason})" for one, reason in result.without_verdict.items())
        return f"{len(result.without_verdict)} of {number} canary instances without a verdict: {named}."
    return f"Canary: the reference patches of {count(number, 'instance')} are resolved on these machines."
