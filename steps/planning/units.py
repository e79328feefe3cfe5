"""Planning of units: each begins at the first stage without a stored result."""

from __future__ import annotations

from typing import Any

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.data import Patch, Stage, Unit
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.solve_record import SolveRecord
from swe_argo.steps.contracts.verdict import GradeRecord


def plan_units(spec: RunSpec, run_id: str, selected: list[dict[str, Any]], stored_keys: set[str]) -> list[Unit]:
    """Return the units of a run; each begins at the first stage whose result is missing.

    Units are ordered by repository, then by the dataset's order, so that units that share image layers run close
    together.
    """
    first = {repo: place for place, repo in enumerate(dict.fromkeys(row["repo"] for row in selected))}
    units, solves = [], agent_of(spec.agent).solves
    for row in sorted(selected, key=lambda row: first[row["repo"]]):
        for attempt in range(1, spec.attempts + 1):
            name = (run_id, row["instance_id"], attempt)
            if key(GradeRecord, *name) in stored_keys:
                begins = Stage.NONE
            elif key(Patch, *name) in stored_keys and (not solves or key(SolveRecord, *name) in stored_keys):
                begins = Stage.GRADE
            else:
                begins = Stage.SOLVE
            units.append(
                Unit(
                    instance_id=row["instance_id"],
                    attempt=attempt,
                    begins=begins,
                    repo=row["repo"],
                    image=row["image"],
                )
            )
    return units
