"""The answered calls of a unit's tries in the store: what earlier ones left, and those of this one as they come."""

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
"""Seconds that an agent waits until its last call is kept: a store that is away does not hold it up."""
OF_MACHINE = frozenset(
    {FailureClass.SANDBOX_LOST, FailureClass.OUT_OF_MEMORY, FailureClass.OUT_OF_DISK, FailureClass.EXEC}
)
"""Failures that the actions themselves may bring about again."""


@dataclass(frozen=True)
class EarlierCalls:
    """What a further try may go on from."""

    calls: list[KeptCall] = field(default_factory=list)
    begins_anew: str = ""
    """Why it does not go on, though there is something."""


def find_earlier_calls(store: Store, run: str, instance: str, attempt: int) -> EarlierCalls:
    """Those of the newest try of a unit that had any, since its verdict was last put away (--redo).

    Not where a try that had performed the same actions again lost its machine before another call was answered: they
    may be what loses it. Raises InfraError, ConfigError.
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
    """Without the calls that ended a conversation: the endpoint may answer them by now.

    An end in the midst of our own agent's conversation stays, for what follows it was asked because of it.
    """
    kept = [call for call in calls if not (call.forwarded and call.ended)]
    while kept and kept[-1].ended:
        kept.pop()
    return kept


def read_answered(store: Store, names: Iterable[str]) -> dict[tuple[str, str], list[KeptCall]]:
    """(Folder of a try, process) -> the calls that it kept, of those of ``names`` that are files of calls."""
    return _read_records(store.get_many(name for name in names if f"/{FOLDER}/" in name))


def remove_calls_of_solved(store: Store, run: str) -> None:
    """Those of solves that are done, which are in their trajectories; what lost tries left tells what they cost.

    Those that the endpoint ended keep theirs: such a unit may be solved again. Raises InfraError.
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
        except ValueError:  # of another version
            log.warning("%s: its answered calls cannot be read", record[0])
    return records


class CallKeeper:
    """Keeps the calls of one process, each before the agent acts on it, unless the store takes its time.

    What the store does not take is offered again when the next one comes; it fails no solve. A part never changes: one
    that only seemed not to be taken is put again as it was.
    """

    def __init__(self, store: Store, place: str) -> None:
        """``place``: what its files are called, up to their numbers."""
        self._store, self._place, self._parts = store, place, 0
        self._waiting: list[bytes] = []
        self._changed = threading.Condition()
        self._refused = 0
        """So many waited when the store did not take what it was offered: it is offered again when more do."""
        self._offered = 0
        """So many of these it was offered: it may have them for all that, under the next part's name."""
        self._taken = 0
        """So many it took."""
        self._late = False
        """Whether somebody waited in vain: nobody does again until it takes them."""
        self._closed = False
        self._thread: threading.Thread | None = None

    def keep(self, calls: Iterable[KeptCall]) -> None:
        """Keep some more. Returns when they are kept, or after WAIT_S. Several threads may keep at a time."""
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
        """Keep no more; what waits is offered for the last time."""
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
