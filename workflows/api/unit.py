"""One unit of a run for a program: an attempt at an instance, and all files of it as what they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

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
    """One attempt at one instance, as it stood when the run's units were read; files are read when they are asked for.

    Reading a file raises ConfigError where it is broken, or of another version, InfraError when the store fails.
    """

    store: Store
    run_id: str
    stored: StoredUnit
    """What the report reads of it."""
    unreadable: tuple[str, ...] = ()
    """Keys of its records that are broken, or of another version: what they say is None here, as if it had not come."""

    def __repr__(self) -> str:
        return f"RunUnit({self.instance_id!r}, attempt {self.attempt} of {self.run_id!r}: {self.standing})"

    @property
    def instance_id(self) -> str:
        """Its instance."""
        return self.stored.instance_id

    @property
    def attempt(self) -> int:
        """Which of the instance's attempts, from 1."""
        return self.stored.attempt

    @property
    def standing(self) -> Standing:
        """Its outcome, or ``failed`` or ``not_run`` where it has none."""
        return self.stored.standing

    @property
    def resolved(self) -> bool | None:
        """The verdict; None where there is none (yet)."""
        return self.grade.resolved if self.grade else None

    @property
    def reward(self) -> float | None:
        """What its family's rule gives, 1 or 0 for SWE-bench; None where there is no verdict: never to be read as 0."""
        return self.grade.reward if self.grade else None

    @property
    def grade(self) -> GradeRecord | None:
        """``grade.json``: the verdict and what is known beside it."""
        return self.stored.grade

    @property
    def integrity(self) -> Literal["ok", "unconfirmed", "suspect"] | None:
        """Whether the verdict can be believed; None if there is none. ``grade.confirmation`` and findings say why."""
        return self.grade.integrity.verdict if self.grade else None

    @property
    def solve(self) -> SolveRecord | None:
        """``solve.json``: how the agent's work went; None where no agent works (``gold``), or it has not ended."""
        return self.stored.solve

    @property
    def failures(self) -> list[Failure]:
        """Why tries failed, oldest first."""
        return [failed_try.failure for failed_try in self.stored.tries]

    @property
    def usage(self) -> Usage:
        """What the model took, failed tries with it."""
        return self.stored.usage

    @property
    def seconds(self) -> dict[str, float]:
        """``solve.agent`` and the like -> seconds, for every stage of the tries that succeeded."""
        return self.stored.seconds

    @property
    def instance(self) -> Instance | None:
        """The issue, and what else an agent may know."""
        return self._read(Instance)

    @property
    def patch(self) -> str | None:
        """The patch; bytes that are no UTF-8 are lone surrogates (PEP 383). None where there is none (yet)."""
        patch = self._read(Patch)
        return None if patch is None else patch.text

    @property
    def trajectory(self) -> Trajectory | None:
        """What the agent did, turn by turn (ATIF); where no try succeeded, of the last that left one, else None."""
        name = self.stored.newest_trajectory
        folder = Place.UNIT.format(run=self.run_id, instance=self.instance_id, attempt=self.attempt)
        return self._parsed(Trajectory, f"{folder}/{name}") if name else None

    @property
    def log(self) -> str | None:
        """What the tests printed; where they did not run, the harness' own log; None where nothing was graded."""
        log = self._read(TestLog) or self._read(InstanceLog)
        return None if log is None else log.data.decode("utf-8", "replace")

    @property
    def place(self) -> str:
        """Where a person finds its files: a folder, or an ``s3://`` address."""
        return self.store.locate(Place.UNIT.format(run=self.run_id, instance=self.instance_id, attempt=self.attempt))

    def _read(self, kind: type[D]) -> D | None:
        return self._parsed(kind, key(kind, self.run_id, self.instance_id, self.attempt))

    def _parsed(self, kind: type[D], name: str) -> D | None:
        data = self.store.get_many([name]).get(name)
        try:
            return None if data is None else kind.from_bytes(data)
        except ValueError:  # pydantic's too
            place = self.store.locate(name)
            raise ConfigError(f"{place} is broken, or of another version of swe-argo", field="run") from None
