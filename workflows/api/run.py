"""One run of a store for a program: its units, figures and tables, read when they are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from swe_argo.steps.contracts.data import Plan, RunFile, Unit
from swe_argo.steps.contracts.record import Place, key
from swe_argo.steps.datasets.names import did_you_mean
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.reports.comparison.compare import compare
from swe_argo.steps.reports.comparison.record import Comparison
from swe_argo.steps.reports.figures.summary import Summary, page_key
from swe_argo.steps.reports.known import known_doubts
from swe_argo.steps.reports.reading import read_unit, read_verdicts
from swe_argo.steps.reports.stored_run import Standing, StoredRun, StoredUnit
from swe_argo.steps.reports.text.formatting import count
from swe_argo.steps.reports.text.visible import WHOLE
from swe_argo.steps.store import Store
from swe_argo.steps.store.run_lock import Lock, lock_in
from swe_argo.steps.store.runs import no_report, no_run, record_of, store_flag
from swe_argo.workflows.api.unit import RunUnit
from swe_argo.workflows.local.whole_steps import Show, make_report

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class RunProgress:
    """How far a run has come, counted in units."""

    total: int
    ended: int
    """With a verdict, or failed for good."""
    standings: dict[str, int]
    """How units stand (``resolved``, ``unresolved``, ``failed``, ``not_run``, ...) -> units."""
    being_worked_on: bool
    """As ``Run.is_worked_on``."""


class Run:
    """One run of a store, finished or not. Nothing is read before it is asked for.

    ``file``, ``plan`` and ``summary`` are read once; everything else is read anew each time, so that a run which grows
    can be watched. All raise ConfigError where there is no such run or a file is broken, InfraError when the store
    fails.
    """

    def __init__(self, store: Store, run_id: str) -> None:
        self.run_id = run_id
        self._store = store

    def __repr__(self) -> str:
        return f"Run({self.run_id!r} of {self._store.url!r})"

    @cached_property
    def file(self) -> RunFile:
        """``run.json``: the spec, and what dataset, model and versions it came to."""
        return record_of(self._store, RunFile, self.run_id)

    @cached_property
    def plan(self) -> Plan:
        """``plan.json``: all units in order, and where each began."""
        return record_of(self._store, Plan, self.run_id)

    @cached_property
    def summary(self) -> Summary:
        """``summary.json``: every figure of the report. Raises ConfigError where there is none, or a broken one."""
        name = key(Summary, self.run_id)
        data = self._store.get_many([name]).get(name)
        if data is None:
            self._insist()
            raise no_report(self._store, self.run_id)
        try:
            return Summary.from_bytes(data)
        except ValueError:
            again = f"swe-argo report {self.run_id}{store_flag(self._store)}"
            message = (
                f"the report of {self.run_id!r} is broken, or of another version of swe-argo: {again} writes it again"
            )
            raise ConfigError(message, field="run") from None

    @property
    def has_report(self) -> bool:
        """Whether a report was written, whatever has come since."""
        return "summary" in self.__dict__ or bool(self._store.get_many([key(Summary, self.run_id)]))

    @property
    def is_worked_on(self) -> bool:
        """Whether a runner that lives holds the run's lock. Workflows on Argo hold none."""
        name = key(Lock, self.run_id)
        lock = lock_in(self._store.get_many([name]).get(name))
        return lock is not None and not lock.is_over()

    @property
    def page(self) -> str:
        """Where a person finds the page of the report: a path, or an ``s3://`` address."""
        return self._store.locate(page_key(self.run_id))

    def units(self) -> list[RunUnit]:
        """All units in the order of the plan, with their verdicts as of now."""
        read = self.read()
        return [self._unit(stored, read.unreadable) for stored in read.units]

    def __iter__(self) -> Iterator[RunUnit]:
        return iter(self.units())

    def unit(self, instance_id: str, attempt: int = 1) -> RunUnit:
        """One unit. ``attempt`` counts from 1. Raises ConfigError where the run has none of that name or number."""
        planned = self.planned_unit(instance_id, attempt)
        stored, unreadable = read_unit(self._store, self.run_id, planned, most_tests=WHOLE)
        return self._unit(stored, unreadable)

    def _unit(self, stored: StoredUnit, unreadable: Iterable[str]) -> RunUnit:
        folder = Place.UNIT.format(run=self.run_id, instance=stored.instance_id, attempt=stored.attempt)
        own = tuple(name for name in unreadable if name.startswith(f"{folder}/"))
        return RunUnit(self._store, self.run_id, stored, own)

    def planned_unit(self, instance_id: str, attempt: int = 1) -> Unit:
        """The unit as the plan has it. Raises ConfigError where there is none of that name or number."""
        units = {unit.attempt: unit for unit in self.plan.units if unit.instance_id == instance_id}
        if not units:
            close = did_you_mean(instance_id, sorted({unit.instance_id for unit in self.plan.units}))
            raise ConfigError(f"run {self.run_id!r} has no instance {instance_id!r}{close}", field="instance")
        if attempt not in units:
            message = f"{instance_id!r} has {count(len(units), 'attempt')} in run {self.run_id!r}, not {attempt}"
            raise ConfigError(message, field="--attempt")
        return units[attempt]

    def progress(self) -> RunProgress:
        """How far it has come by now."""
        standings = Counter(unit.standing for unit in self.read().units)
        return RunProgress(
            total=standings.total(),
            ended=standings.total() - standings[Standing.NOT_RUN],
            standings={standing.value: number for standing, number in standings.items()},
            being_worked_on=self.is_worked_on,
        )

    def units_frame(self) -> DataFrame:
        """A row a unit, every figure a column, as in ``units.parquet`` (docs/formats.md); seconds and dollars are real.

        Of a finished run it is the report's own; else what the store holds by now, where ``turns`` is not known yet.
        Raises ConfigError where pandas is not installed.
        """
        from swe_argo.workflows.api.frames import units_frame

        return units_frame(self._store, self.run_id)

    def calls_frame(self) -> DataFrame:
        """A row a call, of the model or of a tool, from the trajectories that count: see ``frames.CALLS`` for columns.

        Failed tries are not in it: their usage is in the frame of units. Raises ConfigError where pandas is not
        installed.
        """
        from swe_argo.workflows.api.frames import calls_frame

        return calls_frame(self._store, self.run_id)

    def compare(self, first: Run) -> Comparison:
        """Return this run minus another one: differences in set-up, gains, losses, McNemar's test.

        Args:
            first: The run to compare with, of this store or another.

        Raises:
            ConfigError: Either run has no report, or both are the same.
        """
        if (first._store.url, first.run_id) == (self._store.url, self.run_id):
            raise ConfigError(f"{self.run_id!r} is named twice: a run is compared with another one", field="run")
        before, after = first._reported(), self._reported()
        return compare(before, after, known_doubts(self._store, after.run.dataset.name).describe)

    def write_report(self, show: Show | None = None) -> Summary:
        """Write the report again, from what the store holds; ``show`` is called with lines that say how far it is."""
        make_report(self._store.url, self.run_id, show)
        self.__dict__.pop("summary", None)
        return self.summary

    def read(self) -> StoredRun:
        """The run as the report reads it, without issues, patches and logs."""
        self._insist()
        return read_verdicts(self._store, self.run_id, most_tests=WHOLE)

    def _reported(self) -> StoredRun:
        stored = self.read()
        if not self.has_report:
            raise no_report(self._store, self.run_id)
        return stored

    def _insist(self) -> None:
        if not self._store.get_many([key(RunFile, self.run_id)]):
            raise no_run(self._store, self.run_id)
