"""A unit while it is worked on: its turns as they come, then how it ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from rich.console import Console
from rich.text import Text

from swe_argo.steps.contracts.data import RunFile, Unit
from swe_argo.steps.contracts.record import Place, key
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.errors import EXIT_INCOMPLETE, EXIT_OK
from swe_argo.steps.reports.reading import read_unit
from swe_argo.steps.reports.stored_run import StoredUnit
from swe_argo.steps.reports.text.formatting import unit_name
from swe_argo.steps.reports.unit.conversation import Conversation, TurnView, read_conversation
from swe_argo.steps.reports.unit.progress import PHASES, describe_progress
from swe_argo.steps.reports.unit.turns import show_turns
from swe_argo.steps.reports.unit.view import view_unit
from swe_argo.steps.store import Store
from swe_argo.steps.store.run_lock import Lock, lock_in
from swe_argo.steps.store.runs import store_flag
from swe_argo.workflows.api.run import Run
from swe_argo.workflows.local.at_work import UnitAtWork, find_units_at_work
from swe_argo.workflows.local.runner import is_tried_again
from swe_argo.workflows.terminal.unit_lines import turn_lines, unit_lines

POLL_S = 1.0


class UnitFollower:
    """Prints what is new of one unit at each look."""

    def __init__(self, store: Store, run: RunFile, planned: Unit, console: Console, *, full: bool) -> None:
        self._store, self._run, self._planned, self._console, self._full = store, run, planned, console, full
        self._shown = 0
        self._phase = ""
        self._try = ""

    def follow(self) -> int:
        """Until it has its verdict, has failed for good, or nobody works on it. Returns the exit code of the run."""
        name = unit_name(self._planned.instance_id, self._planned.attempt)
        with self._console.status(f"{name}: waiting for its turn") as status:
            while True:
                lock = self._living_lock()  # before the look: what ends between the two is seen by the next look
                at_work = self._find()
                stored = self._read()
                if stored.grade is not None or not (at_work or lock):
                    break
                if lock and not at_work and has_failed(stored, self._run.spec, lock):
                    break
                if at_work is not None:
                    self._tell(at_work)
                    words = describe_progress(at_work.progress, datetime.now(UTC))
                    status.update(Text(f"{name}: {words}", overflow="ellipsis", no_wrap=True))
                time.sleep(POLL_S)
        return self._end(stored, goes_on=lock is not None)

    def _tell(self, at_work: UnitAtWork) -> None:
        progress = at_work.progress
        if progress.phase != self._phase:
            self._phase = progress.phase
            self._print([Text(f"-- {PHASES[progress.phase]}", style="dim")])
        try:
            conversation = read_conversation(at_work.trajectory.read_bytes())
        except (OSError, ValueError):  # before its first turn, or after its last
            return
        if (place := str(at_work.trajectory)) != self._try:  # another try has another folder, and begins anew
            self._try, self._shown = place, 0
        turns = conversation.turns
        self._show(conversation, len(turns) if not turns or _is_whole(turns[-1]) else len(turns) - 1)

    def _show(self, conversation: Conversation, most: int) -> None:
        if most <= self._shown:
            return
        for turn in show_turns(replace(conversation, turns=conversation.turns[:most]), None)[self._shown :]:
            self._print(turn_lines(turn, full=self._full))
        self._shown = most

    def _end(self, stored: StoredUnit, *, goes_on: bool) -> int:
        name = stored.newest_trajectory
        folder = Place.UNIT.format(run=self._run.run_id, instance=stored.instance_id, attempt=stored.attempt)
        conversation = None
        if name:
            try:
                conversation = read_conversation(self._store.get(f"{folder}/{name}"))
            except (ValueError, FileNotFoundError):
                conversation = None
        if conversation is not None:
            self._show(conversation, len(conversation.turns))
        view = view_unit(stored, conversation, {}, whole=self._full)
        self._print([Text("")])
        self._print(unit_lines(stored, replace(view, turns=[]), full=self._full))
        if stored.grade is None:
            run_id = self._run.run_id
            where = (
                "it has failed for good, and its run goes on"
                if goes_on
                else f"nobody on this machine works on it; where it runs on a cluster: swe-argo watch {run_id}"
            )
            self._print([Text(f"{where}; what there is by now: swe-argo show {run_id}{store_flag(self._store)}")])
        return EXIT_OK if stored.grade is not None else EXIT_INCOMPLETE

    def _read(self) -> StoredUnit:
        return read_unit(self._store, self._run.run_id, self._planned)[0]

    def _find(self) -> UnitAtWork | None:
        wanted = (self._planned.instance_id, self._planned.attempt)
        found = find_units_at_work(self._run)
        return next((one for one in found if (one.progress.instance_id, one.progress.attempt) == wanted), None)

    def _living_lock(self) -> Lock | None:
        name = key(Lock, self._run.run_id)
        lock = lock_in(self._store.get_many([name]).get(name))
        return None if lock is None or lock.is_over() else lock

    def _print(self, lines: Iterator[Text] | list[Text]) -> None:
        for line in lines:
            self._console.print(line, soft_wrap=True)


def has_failed(stored: StoredUnit, spec: RunSpec, lock: Lock) -> bool:
    """Whether the runner that holds the run tries the unit no more. What failed before it came, it tries anew."""
    if stored.failure is None or not lock.began_at:
        return False
    since = datetime.fromtimestamp(int(lock.began_at), UTC)  # failures are told by the second
    failures = [one.failure for one in stored.tries if datetime.fromisoformat(one.failure.occurred_at) >= since]
    count = sum(failure.step == stored.failure.step for failure in failures)
    return count > 0 and not is_tried_again(spec, stored.failure, count)


def _is_whole(turn: TurnView) -> bool:
    """Whether all that belongs to a turn has come: observations are written after it."""
    return all(call.results for call in turn.calls)


def follow_unit(store: Store, run_id: str, instance: str, attempt: int, console: Console, *, full: bool) -> int:
    """Follow one unit of a run. Ctrl-C ends the following alone. Returns an exit code; raises ConfigError."""
    run = Run(store, run_id)
    planned = run.planned_unit(instance, attempt)
    console.print(Text(f"{unit_name(instance, attempt)} of {run_id}", style="bold"), soft_wrap=True)
    return UnitFollower(store, run.file, planned, console, full=full).follow()
