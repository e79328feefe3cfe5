"""Recorded model calls of a unit's tries in the store: those of earlier tries, and the recorder of the current one."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from swe_argo.steps.contracts.failure import Failure, FailureClass
from swe_argo.steps.contracts.kept_calls import FOLDER, KeptCall, calls_that_count, read_lines
from swe_argo.steps.contracts.record import Place
from swe_argo.steps.contracts.redone import Redone
from swe_argo.steps.contracts.solve_record import SolveRecord
from swe_argo.steps.contracts.trajectory import ENDED_BY_ENDPOINT
from swe_argo.steps.errors import StepError
from swe_argo.steps.store.protocol import Store

log = logging.getLogger(__name__)
WAIT_S = 5.0
"""Seconds that an agent waits until its last call is stored: a store that is away does not hold it up."""
OF_MACHINE = frozenset(
    {FailureClass.SANDBOX_LOST, FailureClass.OUT_OF_MEMORY, FailureClass.OUT_OF_DISK, FailureClass.EXEC}
)
"""Failures that repeating the same actions may cause again."""


@dataclass(frozen=True)
class EarlierCalls:
    """The recorded calls from which a further try may resume."""

    calls: list[KeptCall] = field(default_factory=list)
    begins_anew: str = ""
    """The reason for a fresh start although there are recorded calls."""


def find_earlier_calls(store: Store, run: str, instance: str, attempt: int) -> EarlierCalls:
    """Return the calls of the unit's newest try that had any, since its verdict was last archived (--redo).

    Not if a try that had replayed the same actions lost its machine before another call was answered: the actions may
    be the cause. Raises InfraError, ConfigError.
    """
    unit = Place.UNIT.format(run=run, instance=instance, attempt=attempt)
    names = store.keys(f"{unit}/tries/")
    contents = store.get_many(name for name in names if _is_wanted(name))
    redone = [Redone.from_bytes(data).at for name, data in contents.items() if name.endswith(f"/{Redone.file}")]
    records = {
        writer: calls
        for writer, calls in _read_records(contents).items()
        if calls and calls[-1].at.isoformat(timespec="seconds") > max(redone, default="")
    }
    if not records:
        return EarlierCalls()
    newest = max(records.values(), key=lambda calls: calls[-1].at)
    for (folder, writer), calls in records.items():
        went_on = calls[-1] == newest[-1] and calls[-1].try_name != writer
        failure = contents.get(f"{folder}/{Failure.file}")
        if went_on and failure and Failure.from_bytes(failure).failure_class in OF_MACHINE:
            return EarlierCalls(begins_anew="a try that had gone on from there lost its sandbox before the next answer")
    return EarlierCalls(_without_ends(newest))


def _without_ends(calls: list[KeptCall]) -> list[KeptCall]:
    """Return the calls without those that ended a conversation: the endpoint may answer them by now.

    An end in the midst of our own agent's conversation stays, because the requests after it depend on it.
    """
    kept = [call for call in calls if not (call.forwarded and call.ended)]
    while kept and kept[-1].ended:
        kept.pop()
    return kept


def read_answered(store: Store, names: Iterable[str]) -> dict[tuple[str, str], list[KeptCall]]:
    """Return (folder of a try, process) -> its recorded calls, for the files of calls among ``names``."""
    return _read_records(store.get_many(name for name in names if f"/{FOLDER}/" in name))


def remove_calls_of_solved(store: Store, run: str) -> None:
    """Remove the calls of finished solves, which their trajectories contain; those of lost tries stay for their cost.

    Solves that the endpoint ended keep theirs: such a unit may be solved again. Raises InfraError.
    """
    kept: dict[str, list[str]] = defaultdict(list)
    for name in store.keys(f"runs/{run}/units/"):
        unit, mark, _ = name.partition("/tries/")
        if mark and f"/{FOLDER}/" in name:
            kept[unit].append(name)
    solves = store.get_many(f"{unit}/{SolveRecord.file}" for unit in kept)
    removed = []
    for name, data in solves.items():
        unit, record = name.rpartition("/")[0], SolveRecord.from_bytes(data)
        place = "" if record.stop_reason in ENDED_BY_ENDPOINT else record.kept_calls
        removed += [each for each in kept[unit] if place and each.startswith(f"{unit}/{place}.")]
    store.delete_many(removed)


def _is_wanted(name: str) -> bool:
    return f"/{FOLDER}/" in name or name.endswith((f"/{Redone.file}", f"/{Failure.file}"))


def _read_records(contents: dict[str, bytes]) -> dict[tuple[str, str], list[KeptCall]]:
    files: dict[tuple[str, str], dict[str, bytes]] = defaultdict(dict)
    for name, data in contents.items():
        folder, mark, file = name.partition(f"/{FOLDER}/")
        if mark:
            writer, _, part = file.removesuffix(".jsonl").rpartition(".")
            files[folder, writer][part] = data
    records = {}
    for record, parts in files.items():
        try:
            records[record] = calls_that_count(read_lines(b"".join(parts[part] for part in sorted(parts))))
        except ValueError:  # written by another version
            log.warning("%s: its answered calls cannot be read", record[0])
    return records


class CallKeeper:
    """Records the calls of one process, each before the agent acts on it, unless the store is slow.

    A part that the store rejects is retried with the next call; it fails no solve. A part never changes: one whose
    write only seemed to fail is written again unchanged.
    """

    def __init__(self, store: Store, place: str) -> None:
        """Start a recorder. ``place``: the path of its files without their numbers."""
        self._store, self._place, self._parts = store, place, 0
        self._waiting: list[bytes] = []
        self._changed = threading.Condition()
        self._refused = 0
        """The number of waiting lines at the last failed write: it is retried when there are more."""
        self._offered = 0
        """The number of lines in that write, which the store may have under the next part's name."""
        self._taken = 0
        """The number of lines that the store has accepted."""
        self._late = False
        """Whether a wait timed out: nobody waits again until the store accepts the lines."""
        self._closed = False
        self._thread: threading.Thread | None = None

    def keep(self, calls: Iterable[KeptCall]) -> None:
        """Record calls. Returns when they are stored, or after WAIT_S. Thread-safe."""
        lines = [call.to_line() for call in calls]
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
            self._waiting += lines
            until = self._taken + len(self._waiting)
            self._changed.notify_all()
            if not self._late and not self._changed.wait_for(lambda: self._taken >= until, WAIT_S):
                self._late = True

    def close(self) -> None:
        """Stop recording; try to store the waiting lines once more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            if self._thread is not None:
                self._changed.wait_for(lambda: not self._waiting, WAIT_S)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or len(self._waiting) > self._refused)
                lines, closed = self._waiting[: self._offered or None], self._closed
                waiting = len(self._waiting)
            if not lines:
                return
            try:
                self._store.put(f"{self._place}.{self._parts:05}.jsonl", b"".join(lines))
            except StepError as error:
                log.warning("an answer is not kept yet, a further try would ask it again: %s", error)
                if closed:
                    return
                self._refused, self._offered = waiting, len(lines)
                continue
            with self._changed:
                self._parts, self._refused, self._offered, self._late = self._parts + 1, 0, 0, False
                self._taken += len(lines)
                del self._waiting[: len(lines)]
                self._changed.notify_all()
