"""Units in progress on any machine, detected by the recorded model calls in the store."""

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
"""Seconds after its newest model call for which a unit counts as running: a killed try leaves no other sign."""
PARTS_AT_ONCE = 128
"""Number of recorded-call files read into memory at a time."""


@dataclass(frozen=True)
class AnsweredUnit:
    """The state of a running unit, derived from its recorded model calls."""

    progress: UnitProgress
    """Progress since its agent began or its last failed try ended; iterative mode: the usage of the current attempt."""
    answered_at: datetime
    """Time of its newest model response."""
    place: str
    """Store location of its recorded calls, as in ``SolveRecord.kept_calls``."""
    parts: tuple[str, ...]
    """Keys of the files with those calls, in order."""


@dataclass(frozen=True, slots=True)
class _Newest:
    """The newest model call that a process recorded."""

    at: datetime
    began: datetime
    """Start of its agent, as if no try had been lost."""
    usage: Usage
    action: str


class AnsweredUnits:
    """The running units of a run that is polled: only the newest file of each process is read, and only once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, _Newest | None] = {}
        """By the file's key; None if it cannot be read."""

    def find(self, growing: GrowingRun, stored: StoredRun) -> list[AnsweredUnit]:
        """Return the running units, oldest first. ``stored`` is the latest result of ``growing``. Raises like it."""
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
    """Return recorded-call files by process, without those of tries known to have failed."""
    folder = Place.UNIT.format(run=run, instance=unit.instance_id, attempt=unit.attempt)
    failed = {one.name for one in unit.tries}
    parts: dict[str, list[str]] = defaultdict(list)
    for file in files:
        if file.split("/")[1] not in failed:
            parts[_record(file)].append(f"{folder}/{file}")
    return parts


def _record(part: str) -> str:
    """Return the name of a recorded-call file without its number."""
    return part.removesuffix(".jsonl").rpartition(".")[0]


def _newest(call: KeptCall) -> _Newest:
    return _Newest(
        at=call.at,
        began=call.at - timedelta(seconds=call.seconds),
        usage=call.usage,
        action=last_action(call.as_turn()),
    )


def _last_end(unit: StoredUnit) -> datetime:
    """Return when its newest failed try ended or its verdict was archived: earlier calls are of the past."""
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
