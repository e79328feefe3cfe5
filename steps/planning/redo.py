"""Verdicts that a person wants sought again -> what is put away of them, so that their units begin anew."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from steps.contracts.agent_spec import agent_of
from steps.contracts.chain import GRADE, SOLVE
from steps.contracts.data import SolveRecord
from steps.contracts.record import Place, key
from steps.contracts.redone import Redone
from steps.contracts.run_spec import RunSpec
from steps.contracts.trajectory import StopReason, Usage
from steps.contracts.verdict import GradeRecord, Outcome
from steps.datasets.names import did_you_mean
from steps.errors import ConfigError
from steps.reports.text.formatting import count
from steps.store import Store

FIELD = "redo"
WORDS = (
    *(each.value for each in Outcome if each is not Outcome.NO_PREDICTION),
    *(each.value for each in StopReason if each is not StopReason.INTERRUPTED),
)
"""Outcomes and stop reasons that choose units."""


@dataclass(frozen=True)
class RedoPlan:
    """What becomes earlier tries: first it is copied, then it is removed from where it decides."""

    copies: list[tuple[str, str]] = field(default_factory=list)
    """(Store key, where it is kept)."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Store key -> bytes: a Redone for each unit."""
    notices: list[str] = field(default_factory=list)

    @property
    def removed(self) -> set[str]:
        """Keys that are no more when it is done."""
        return {source for source, _ in self.copies}


def plan_redo(spec: RunSpec, rows: list[dict[str, Any]], store: Store, stored_keys: set[str]) -> RedoPlan:
    """``stored_keys``: of the run's units. The same again finds nothing: what was put away has no verdict.

    Raises ConfigError where a word of ``spec.redo`` is no outcome, stop reason or selected unit; InfraError.
    """
    wanted = [word.strip() for item in spec.redo for word in item.split(",") if word.strip()]
    if not wanted:
        return RedoPlan()
    run_id, ids = spec.run_id or "", [row["instance_id"] for row in rows]
    units = {(one, attempt): None for one in ids for attempt in range(1, spec.attempts + 1)}
    words, named = _split(wanted, ids, spec.attempts)
    graded = {unit: name for unit in units if (name := key(GradeRecord, run_id, *unit)) in stored_keys}
    grades = store.get_many(graded.values())
    solves = store.get_many(key(SolveRecord, run_id, *unit) for unit in graded)
    solves_again, plan = agent_of(spec.agent).solves, RedoPlan()
    steps = (SOLVE, GRADE) if solves_again else (GRADE,)
    for unit, name in graded.items():
        grade = GradeRecord.from_bytes(grades[name])
        data = solves.get(key(SolveRecord, run_id, *unit))
        solve = SolveRecord.from_bytes(data) if data is not None else None
        reasons = [grade.outcome.value, *([solve.stop_reason.value] if solve else [])]
        by = next((one for one in (*reasons, unit[0], f"{unit[0]}/{unit[1]}") if one in words | named), None)
        if by is None or grade.outcome is Outcome.NO_PREDICTION:
            continue
        spent = [grade, *([solve] if solve and solves_again else [])]
        record = Redone(
            instance_id=unit[0],
            attempt=unit[1],
            outcome=grade.outcome,
            stop_reason=solve.stop_reason if solve else None,
            requested=by,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            usage=solve.usage if solve and solves_again else Usage(),
            seconds=round(sum(sum(one.seconds.values()) for one in spent), 3),
        )
        # By its content: what is interrupted and done again is kept once.
        kept = f"redone-{hashlib.sha256(grades[name]).hexdigest()[:12]}"
        folder = Place.UNIT.format(run=run_id, instance=unit[0], attempt=unit[1])
        place = Place.TRY.format(run=run_id, instance=unit[0], attempt=unit[1], name=kept)
        plan.files[f"{place}/{Redone.file}"] = record.to_bytes()
        plan.copies.extend(
            (source, f"{place}/{kind.file}")
            for step in steps
            for kind in (*step.gives, *step.may_give)
            if (source := f"{folder}/{kind.file}") in stored_keys
        )
    plan.notices.append(_describe(wanted, len(plan.files)))
    return plan


def _split(wanted: list[str], ids: list[str], attempts: int) -> tuple[set[str], set[str]]:
    """Outcomes and stop reasons; instances, and units as INSTANCE/ATTEMPT."""
    known = {*ids, *(f"{one}/{attempt}" for one in ids for attempt in range(1, attempts + 1))}
    words, named = set[str](), set[str]()
    for each in wanted:
        word = each.lower().replace("-", "_")
        if each in known:
            named.add(each)
        elif word in WORDS:
            words.add(word)
        else:
            near = did_you_mean(each, [*WORDS, *ids])
            raise ConfigError(
                f"{each!r} is no outcome, stop reason or selected instance{near}; outcomes and stop reasons: "
                f"{', '.join(WORDS)}. Units without a verdict are done again anyway",
                field=FIELD,
            )
    return words, named


def _describe(wanted: list[str], units: int) -> str:
    chosen = ", ".join(wanted)
    if not units:
        return f"nothing to redo: no unit with a verdict is {chosen}"
    return f"{count(units, 'unit')} done again ({chosen}); the old verdicts are kept as earlier tries"
