"""Rows of a run -> its canary: reference patches of a few of its instances, graded before anything else is begun."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any, cast

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.agents import AgentKind
from swe_argo.steps.contracts.backends import backend_named
from swe_argo.steps.contracts.data import CANARY_ATTEMPT, Patch, Plan, Stage, Unit
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.families.family import LayerFamily
from swe_argo.steps.families.rows import family_of
from swe_argo.steps.store import Store

USUAL = 3
"""Instances, where nobody says otherwise."""
FROM_UNITS = 50
"""Units that are to be done, from which on a run on a cluster has one."""


@dataclass(frozen=True)
class CanaryPlan:
    """Units of attempt ``CANARY_ATTEMPT``, and what is written for them."""

    units: list[Unit] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    """Store key -> bytes."""
    outdated: list[str] = field(default_factory=list)
    """Keys of verdicts that are sought anew: the machines may have been put right since."""
    notices: list[str] = field(default_factory=list)


def canary_size(spec: RunSpec, to_do: int, before: int = 0) -> int:
    """How many instances it has, of a run that had ``before`` when it was planned last; 0: none."""
    if agent_of(spec.agent).kind in (AgentKind.REFERENCE, AgentKind.CONTROL) or not to_do:
        return 0  # such a run measures the machines itself
    if spec.canary is not None:
        return spec.canary
    usual = USUAL if backend_named(spec.sandbox.backend).on_cluster and to_do >= FROM_UNITS else 0
    return max(usual, before)


def plan_canary(
    spec: RunSpec, rows: list[dict[str, Any]], to_do: int, store: Store, doubtful: Collection[str]
) -> CanaryPlan:
    """The canary of a run, over as many repositories as it can be. Raises InfraError.

    ``doubtful``: instances that are known to be flaky or unfit, and so say nothing of a machine. One whose reference
    patch was resolved when the run was planned before is not graded again. Where nothing is left to do, what the last
    canary said stays said.
    """
    earlier = _earlier_units(spec.run_id or "", store)
    if earlier and not to_do:
        return CanaryPlan(units=earlier)
    size = canary_size(spec, to_do, len(earlier))
    if not size:
        return CanaryPlan()
    solved = [row for row in rows if _has_reference(row)]
    usable = [row for row in solved if row["instance_id"] not in doubtful]
    if not usable:
        why = "none is known fit" if solved else "none of its rows has a reference patch"
        return CanaryPlan(notices=[f"no canary: {why}, so nothing says whether the machines are to be believed"])
    run_id = spec.run_id or ""
    chosen = _spread(usable)[:size]
    names = {row["instance_id"]: key(GradeRecord, run_id, row["instance_id"], CANARY_ATTEMPT) for row in chosen}
    before = {name: GradeRecord.from_bytes(data) for name, data in store.get_many(names.values()).items()}
    outdated = [name for name, grade in before.items() if not grade.resolved]
    units = [
        Unit(
            instance_id=row["instance_id"],
            attempt=CANARY_ATTEMPT,
            begins=Stage.NONE if names[row["instance_id"]] in before.keys() - set(outdated) else Stage.GRADE,
            repo=row["repo"],
            image=row["image"],
        )
        for row in chosen
    ]
    files = {
        key(Patch, run_id, row["instance_id"], CANARY_ATTEMPT): Patch.from_text(row["patch"]).to_bytes()
        for row in chosen
    }
    return CanaryPlan(units, files, outdated)


def _earlier_units(run_id: str, store: Store) -> list[Unit]:
    """The canary of the run as it was planned last; none where that plan cannot be read."""
    data = store.get_many([name := key(Plan, run_id)]).get(name)
    try:
        units = Plan.from_bytes(data).canary if data is not None else []
    except ValueError:  # of another version
        return []
    return [unit.model_copy(update={"begins": Stage.NONE}) for unit in units]


def _has_reference(row: dict[str, Any]) -> bool:
    family = family_of(row)
    return bool(row["patch"]) if family.hands_on == "patch" else cast(LayerFamily, family).has_reference(row)


def _spread(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One of each repository in turn."""
    by_repo = defaultdict(list)
    for row in rows:
        by_repo[row["repo"]].append(row)
    return [row for row in chain(*zip_longest(*by_repo.values())) if row is not None]
