"""Units at work, whoever works on them and wherever: known by the answers of their models, which the store keeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from swe_argo.steps.contracts.chain import SOLVE
from swe_argo.steps.contracts.kept_calls import FOLDER, KeptCall
from swe_argo.steps.contracts.record import Place
from swe_argo.steps.contracts.trajectory import Usage
from swe_argo.steps.contracts.unit_progress import UnitProgress, last_action
from swe_argo.steps.reports.batches import batches
from swe_argo.steps.reports.reading import GrowingRun
from swe_argo.steps.reports.stored_run import StoredRun, StoredUnit
from swe_argo.steps.store import Store
from swe_argo.steps.store.kept_calls import read_answered

STILL_S = 900.0
"""Seconds after its newest answer for which a unit counts as at work: a try that is killed leaves no other sign."""
PARTS_AT_ONCE = 128
"""In memory."""


@dataclass(frozen=True)
class AnsweredUnit:
    """A unit at work, as far as its answered calls tell."""

    progress: UnitProgress
    """Since its agent began, or its last failed try ended; in iterative mode the usage is of the attempt at work."""
    answered_at: datetime
    """When its newest answer came."""
    place: str
    """Of its answered calls, by ``SolveRecord.kept_calls``."""
    parts: tuple[str, ...]
    """Keys of the files of those calls, in their order."""


@dataclass(frozen=True, slots=True)
class _Newest:
    """The newest answer that a process kept."""

    at: datetime
    began: datetime
    """When its agent would have begun, had no try been lost."""
    usage: Usage
    action: str


class AnsweredUnits:
    """Those of a run that is read again and again: of each process the newest part is read, and that once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, _Newest | None] = {}
        """By the part's key; None where it cannot be read."""

    def find(self, growing: GrowingRun, stored: StoredRun) -> list[AnsweredUnit]:
        """In the order in which they began. ``stored``: what ``growing`` has just read. Raises as it does."""
        records = {
            (unit.instance_id, unit.attempt): _records(stored.run.run_id, unit, files)
            for unit in stored.units
            if (files := growing.answered.get((unit.instance_id, unit.attempt)))
        }
        self._read(parts[-1] for of_unit in records.values() for parts in of_unit.values())
        most, now = stored.run.spec.agent.most_turns, datetime.now(UTC)
        found = []
        for unit in stored.units:
            of_unit = records.get((unit.instance_id, unit.attempt), {})
            known = [(newest, place) for place, parts in of_unit.items() if (newest := self._known[parts[-1]])]
            if not known:
                continue
            newest, place = max(known, key=lambda one: one[0].at)
            last_end = _last_end(unit)
            if (now - newest.at).total_seconds() <= STILL_S and newest.at.replace(microsecond=0) > last_end:
                since = max(newest.began, last_end)
                progress = _progress(stored.run.run_id, unit, newest, since, most)
                found.append(AnsweredUnit(progress, newest.at, place, tuple(of_unit[place])))
        return sorted(found, key=lambda one: one.progress.since)

    def _read(self, parts: Iterable[str]) -> None:
        names = list(parts)
        self._known = {name: self._known[name] for name in names if name in self._known}
        for some in batches([name for name in names if name not in self._known], PARTS_AT_ONCE):
            self._known |= dict.fromkeys(some)
            by_record = {_record(name): name for name in some}
            for (folder, writer), calls in read_answered(self._store, some).items():
                if calls:
                    self._known[by_record[f"{folder}/{FOLDER}/{writer}"]] = _newest(calls[-1])


def _records(run: str, unit: StoredUnit, files: Sequence[str]) -> dict[str, list[str]]:
    """Place of the calls of a process, of a try that is not known to have failed -> the keys of its parts."""
    folder = Place.UNIT.format(run=run, instance=unit.instance_id, attempt=unit.attempt)
    failed = {one.name for one in unit.tries}
    parts: dict[str, list[str]] = defaultdict(list)
    for file in files:
        if file.split("/")[1] not in failed:
            parts[_record(file)].append(f"{folder}/{file}")
    return parts


def _record(part: str) -> str:
    """What a part is called up to its number."""
    return part.removesuffix(".jsonl").rpartition(".")[0]


def _newest(call: KeptCall) -> _Newest:
    return _Newest(
        at=call.at,
        began=call.at - timedelta(seconds=call.seconds),
        usage=call.usage,
        action=last_action(call.as_turn()),
    )


def _last_end(unit: StoredUnit) -> datetime:
    """When its newest failed try ended, or its verdict was put away: what was answered before is of the past."""
    last = datetime.min.replace(tzinfo=UTC)
    for text in (*(one.failure.occurred_at for one in unit.tries), *(one.at for one in unit.redone)):
        with suppress(ValueError):
            moment = datetime.fromisoformat(text)
            last = max(last, moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    return last


def _progress(run: str, unit: StoredUnit, newest: _Newest, since: datetime, most: int | None) -> UnitProgress:
    return UnitProgress(
        run=run,
        instance_id=unit.instance_id,
        attempt=unit.attempt,
        step=SOLVE.name,
        phase="agent",
        since=since.isoformat(timespec="milliseconds"),
        turn=newest.usage.calls,
        most_turns=most,
        usage=newest.usage,
        action=newest.action,
    )
