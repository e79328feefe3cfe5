"""A unit of a run: an attempt at an instance, with its files as typed records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

from typing_extensions import override

from swe_argo.steps.contracts.data import Instance, Patch
from swe_argo.steps.contracts.failure import Failure
from swe_argo.steps.contracts.record import Place, key
from swe_argo.steps.contracts.solve_record import SolveRecord
from swe_argo.steps.contracts.trajectory import Trajectory, Usage
from swe_argo.steps.contracts.verdict import GradeRecord, InstanceLog, TestLog
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.reports.stored_run import Standing, StoredUnit
from swe_argo.steps.store import Store

D = TypeVar("D", Instance, Patch, TestLog, InstanceLog, Trajectory)


@dataclass(frozen=True)
class RunUnit:
    """An attempt at an instance, at the time when the run's units were read; its files are read on demand.

    Reading a file raises ConfigError if it is broken or from another version, InfraError if the store fails.
    """

    store: Store
    run_id: str
    stored: StoredUnit
    """The unit as the report reads it."""
    unreadable: tuple[str, ...] = ()
    """Keys of records that are broken or from another version; their values here are None, as if they were missing."""

    @override
    def __repr__(self) -> str:
        return f"RunUnit({self.instance_id!r}, attempt {self.attempt} of {self.run_id!r}: {self.standing})"

    @property
    def instance_id(self) -> str:
        """The id of the instance."""
        return self.stored.instance_id

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1."""
        return self.stored.attempt

    @property
    def standing(self) -> Standing:
        """The outcome, or ``failed`` or ``not_run`` without a verdict."""
        return self.stored.standing

    @property
    def resolved(self) -> bool | None:
        """The verdict; None if there is none (yet)."""
        return self.grade.resolved if self.grade else None

    @property
    def reward(self) -> float | None:
        """The reward by its family's rule, 1 or 0 for SWE-bench; None, never to be read as 0, without a verdict."""
        return self.grade.reward if self.grade else None

    @property
    def grade(self) -> GradeRecord | None:
        """``grade.json``: the verdict and the facts recorded with it."""
        return self.stored.grade

    @property
    def integrity(self) -> Literal["ok", "unconfirmed", "suspect"] | None:
        """Whether the verdict can be trusted; None without one. ``grade.confirmation`` and findings say why."""
        return self.grade.integrity.verdict if self.grade else None

    @property
    def solve(self) -> SolveRecord | None:
        """``solve.json``: the record of the agent's work; None without an agent (``gold``) or before its end."""
        return self.stored.solve

    @property
    def failures(self) -> list[Failure]:
        """The failures of failed tries, oldest first."""
        return [failed_try.failure for failed_try in self.stored.tries]

    @property
    def usage(self) -> Usage:
        """The usage of the model, failed tries included."""
        return self.stored.usage

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by stage, such as ``solve.agent``, for every stage of the successful tries."""
        return self.stored.seconds

    @property
    def instance(self) -> Instance | None:
        """The issue and all else that an agent may know."""
        return self._read(Instance)

    @property
    def patch(self) -> str | None:
        """The patch; bytes that are not UTF-8 become lone surrogates (PEP 383). None if there is none (yet)."""
        patch = self._read(Patch)
        return None if patch is None else patch.text

    @property
    def trajectory(self) -> Trajectory | None:
        """The agent's turns (ATIF); without a successful try, those of the last try that left some; else None."""
        name = self.stored.newest_trajectory
        folder = Place.UNIT.format(run=self.run_id, instance=self.instance_id, attempt=self.attempt)
        return self._parsed(Trajectory, f"{folder}/{name}") if name else None

    @property
    def log(self) -> str | None:
        """The output of the tests, or the harness' own log if they did not run; None before grading."""
        log = self._read(TestLog) or self._read(InstanceLog)
        return None if log is None else log.data.decode("utf-8", "replace")

    @property
    def place(self) -> str:
        """Location of the unit's files, for the user: a folder or an ``s3://`` address."""
        return self.store.locate(Place.UNIT.format(run=self.run_id, instance=self.instance_id, attempt=self.attempt))

    def _read(self, kind: type[D]) -> D | None:
        return self._parsed(kind, key(kind, self.run_id, self.instance_id, self.attempt))

    def _parsed(self, kind: type[D], name: str) -> D | None:
        """Return a file as a record, or None if it is missing. Raises ConfigError if it is broken."""
        data = self.store.get_many([name]).get(name)
        try:
            return None if data is None else kind.from_bytes(data)
        except ValueError:  # also pydantic's validation error
            place = self.store.locate(name)
            raise ConfigError(f"{place} is broken or from another version of swe-argo", field="run") from None
