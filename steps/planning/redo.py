"""Redoing of verdicts on request: the files to archive, so that their units start again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.chain import GRADE, SOLVE
from swe_argo.steps.contracts.failure import Failure
from swe_argo.steps.contracts.record import Place, key
from swe_argo.steps.contracts.redone import RETRACTED, Redone, kept_as
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.solve_record import SolveRecord
from swe_argo.steps.contracts.trajectory import StopReason, Usage
from swe_argo.steps.contracts.verdict import GradeRecord, Outcome
from swe_argo.steps.datasets.names import did_you_mean
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.reports.text.formatting import count
from swe_argo.steps.store import Store
from swe_argo.steps.store.endpoint_marks import read_marks, retracted_units, solved_units

FIELD = "redo"
WORDS = (
    *(each.value for each in Outcome if each is not Outcome.NO_PREDICTION),
    *(each.value for each in StopReason if each is not StopReason.INTERRUPTED),
)
"""Outcomes and stop reasons that choose units."""


@dataclass
class RedoPlan:
    """The files that become earlier tries: they are copied first, then removed from where they decide."""

    run_id: str = ""
    copies: list[tuple[str, str]] = field(default_factory=list)
    """(Store key, archive key)."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Store key -> bytes: a Redone for each unit, except those with one from an interrupted archiving; a Failure for
    each unit that ended with the endpoint's failure."""
    notices: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    """Store keys of the marks that the run's solves left for failures of the endpoint."""

    @property
    def removed(self) -> set[str]:
        """The keys that are removed afterwards."""
        return {source for source, _ in self.copies}


def plan_redo(spec: RunSpec, rows: list[dict[str, Any]], store: Store, stored_keys: set[str]) -> RedoPlan:
    """Return the files to archive: of the units that ``spec.redo`` names, and of those that the model endpoint failed.

    ``stored_keys`` are those of the run's units. Idempotent: an archived unit has no verdict. An archiving that was
    killed is finished, whatever ``spec.redo`` names.

    Raises ConfigError if a word of ``spec.redo`` is no outcome, stop reason or selected unit; InfraError.
    """
    plan = _plan_requested(spec, rows, store, stored_keys)
    if stored_keys and agent_of(spec.agent).asks_model:
        _retract(plan, spec.run_id or "", store, stored_keys)
    return plan


def _retract(plan: RedoPlan, run_id: str, store: Store, stored_keys: set[str]) -> None:
    """Archive solves that ended with the endpoint's failure, as failed tries, and remove all marks of such failures."""
    marks = read_marks(store, run_id)
    retracted = retracted_units(marks, solved_units(run_id, stored_keys)) if marks else {}
    failures = store.get_many(mark.key for mark in retracted.values())
    solves = store.get_many(key(SolveRecord, run_id, *unit) for unit in retracted)
    plan.marks += [mark.key for mark in marks]
    own = {kind.file for step in (SOLVE, GRADE) for kind in (*step.gives, *step.may_give)}
    units = 0
    for unit, mark in retracted.items():
        folder = Place.UNIT.format(run=run_id, instance=unit[0], attempt=unit[1])
        failure, solved = failures.get(mark.key, b""), solves.get(f"{folder}/{SolveRecord.file}")
        calls = SolveRecord.from_bytes(solved).kept_calls if solved else ""
        place = f"{folder}/tries/{RETRACTED}{hashlib.sha256(failure).hexdigest()[:12]}"
        files = {name: name.removeprefix(f"{folder}/") for name in stored_keys if name.startswith(f"{folder}/")}
        copies = [(name, f"{place}/{file}") for name, file in files.items() if file in own]
        # The recorded answers are kept beside it: the next solve continues from them.
        answers = {name: file for name, file in files.items() if calls and file.startswith(f"{calls}.")}
        if copies and failure and not plan.removed.intersection(files):
            units += 1
            plan.copies += copies
            plan.copies += [(name, f"{place}/{file.split('/', 2)[2]}") for name, file in answers.items()]
            plan.files[f"{place}/{Failure.file}"] = failure
    if units:
        plan.run_id = run_id
        plan.notices.append(f"{count(units, 'unit')} done again: the model's endpoint had ended the conversation")


def _plan_requested(spec: RunSpec, rows: list[dict[str, Any]], store: Store, stored_keys: set[str]) -> RedoPlan:
    wanted = [word.strip() for item in spec.redo for word in item.split(",") if word.strip()]
    begun = {name.partition("/tries/")[0] for name in stored_keys if name.endswith(f"/{Redone.file}")}
    if not wanted and not begun:
        return RedoPlan()
    run_id, ids = spec.run_id or "", [row["instance_id"] for row in rows]
    plan, unfinished = RedoPlan(run_id), 0
    chosen = _read_words(wanted, ids, spec.attempts)
    units = [(one, attempt) for one in ids for attempt in range(1, spec.attempts + 1)]
    graded = {unit: name for unit in units if (name := key(GradeRecord, run_id, *unit)) in stored_keys}
    if not wanted:
        graded = {unit: name for unit, name in graded.items() if name.rpartition("/")[0] in begun}
    grades = store.get_many(graded.values())
    solves = store.get_many(key(SolveRecord, run_id, *unit) for unit in graded)
    solves_again = agent_of(spec.agent).solves
    for unit, name in graded.items():
        place = Place.TRY.format(run=run_id, instance=unit[0], attempt=unit[1], name=kept_as(grades[name]))
        if f"{place}/{Redone.file}" in stored_keys:
            unfinished += 1
        elif record := _choose(
            unit, grades[name], solves.get(key(SolveRecord, run_id, *unit)), chosen, solves=solves_again
        ):
            plan.files[f"{place}/{Redone.file}"] = record.to_bytes()
        else:
            continue
        plan.copies.extend(
            (source, f"{place}/{kind.file}")
            for step in ((SOLVE, GRADE) if solves_again else (GRADE,))
            for kind in (*step.gives, *step.may_give)
            if kind.place is Place.UNIT and (source := key(kind, run_id, *unit)) in stored_keys
        )
    if unfinished:
        plan.notices.append(f"{count(unfinished, 'unit')} done again as was asked for before, when it was interrupted")
    if wanted and (plan.files or not unfinished):
        plan.notices.append(_describe(wanted, len(plan.files)))
    return plan


def _choose(
    unit: tuple[str, int], graded: bytes, solved: bytes | None, chosen: set[str], *, solves: bool
) -> Redone | None:
    """Return the record of a chosen unit's verdict, else None. ``solves``: its solve is repeated, too."""
    grade = GradeRecord.from_bytes(graded)
    solve = SolveRecord.from_bytes(solved) if solved is not None else None
    names = [grade.outcome.value, *([solve.stop_reason.value] if solve else []), unit[0], f"{unit[0]}/{unit[1]}"]
    requested = next((name for name in names if name in chosen), None)
    if requested is None or grade.outcome is Outcome.NO_PREDICTION:
        return None
    seconds = sum(grade.seconds.values())
    if solve and solves:
        seconds += sum(solve.seconds.values())
    return Redone(
        instance_id=unit[0],
        attempt=unit[1],
        outcome=grade.outcome,
        stop_reason=solve.stop_reason if solve else None,
        requested=requested,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        usage=solve.spent if solve and solves else Usage(),
        seconds=round(seconds, 3),
    )


def _read_words(wanted: list[str], ids: list[str], attempts: int) -> set[str]:
    """Return outcomes, stop reasons, instances, and units as INSTANCE/ATTEMPT, in the form of the records."""
    known = {*ids, *(f"{one}/{attempt}" for one in ids for attempt in range(1, attempts + 1))}
    chosen = set()
    for each in wanted:
        word = each.lower().replace("-", "_")
        if each in known:
            chosen.add(each)
        elif word in WORDS:
            chosen.add(word)
        else:
            near = did_you_mean(each, [*WORDS, *ids])
            raise ConfigError(
                f"{each!r} is no outcome, stop reason or selected instance{near}; outcomes and stop reasons: "
                f"{', '.join(WORDS)}. Units without a verdict are done again anyway",
                field=FIELD,
            )
    return chosen


def _describe(wanted: list[str], units: int) -> str:
    chosen = ", ".join(wanted)
    if not units:
        return f"nothing to redo: no unit with a verdict is {chosen}"
    return f"{count(units, 'unit')} done again ({chosen}); the old verdicts are kept as earlier tries"
