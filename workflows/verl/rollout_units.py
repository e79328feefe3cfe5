"""Rollouts as units of a run in the store of their rows, one run per step: ``swe-argo report`` reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from swe_argo.steps.contracts.chain import SOLVE
from swe_argo.steps.contracts.data import Answer, Instance, Patch, Plan, RunFile, Stage, Unit
from swe_argo.steps.contracts.failure import Failure
from swe_argo.steps.contracts.record import Raw, Record, key
from swe_argo.steps.errors import StepError
from swe_argo.steps.store import open_store
from swe_argo.workflows.rollouts.task import RolloutTask


class RolloutUnit:
    """Storage of one rollout. Methods raise InfraError if the store fails, ConfigError if it may not be written."""

    def __init__(self, task: RolloutTask, run_id: str, model: str, attempt: int) -> None:
        self._task, self.run_id, self.model, self.attempt = task, run_id, model, attempt
        self._store = open_store(task.store)

    def register(self) -> None:
        """Add the unit to the plan, so that a lost rollout is reported as missing.

        Data of the unit from an earlier validation of the same step is deleted: its verdict is not part of this one.
        """
        instance, run_id = self._task.instance, self.run_id
        self._store.delete_many(self._store.keys(f"{self._folder}/"))
        name = key(RunFile, run_id)
        if not self._store.get_many([name]):
            spec = self._task.run.spec.model_copy(update={"run_id": run_id})
            began = datetime.now(UTC).isoformat(timespec="seconds")
            run = self._task.run.model_copy(
                update={"run_id": run_id, "spec": spec, "created_at": began, "model": self.model}
            )
            self._store.swap(name, None, run.to_bytes())
        data: tuple[Instance, Answer] = (instance, self._task.answer)
        self._store.put_many({key(type(datum), run_id, instance.instance_id): datum.to_bytes() for datum in data})
        unit = Unit(
            instance_id=instance.instance_id,
            attempt=self.attempt,
            begins=Stage.SOLVE,
            repo=instance.repo,
            image=instance.image,
        )
        self._plan(unit)

    def store_results(self, solved: Iterable[Record | Raw], graded: Mapping[str, bytes]) -> None:
        """Store the files of solving and grading, the verdict last."""
        files = {datum.file: datum.to_bytes() for datum in solved} | dict(graded)
        self._store.put_many({f"{self._folder}/{name}": data for name, data in sorted(files.items())})

    def store_failure(self, error: StepError) -> None:
        """Store the reason why the rollout has no verdict."""
        now = datetime.now(UTC)
        failure = Failure(
            step=SOLVE.name,
            instance_id=self._task.instance.instance_id,
            attempt=self.attempt,
            failure_class=error.failure_class,
            reason=error.reason,
            detail=error.detail,
            exit_code=error.exit_code,
            occurred_at=now.isoformat(timespec="seconds"),
        )
        name = key(Failure, self.run_id, failure.instance_id, self.attempt, f"{now:%Y%m%dT%H%M%S%f}")
        self._store.put(name, failure.to_bytes())

    @property
    def _folder(self) -> str:
        return key(Patch, self.run_id, self._task.instance.instance_id, self.attempt).rpartition("/")[0]

    def _plan(self, unit: Unit) -> None:
        """Add the unit to the plan atomically: other rollouts, also in other processes, write the same plan."""
        name = key(Plan, self.run_id)
        while True:
            old = self._store.get_many([name]).get(name)
            units = Plan.from_bytes(old).units if old else []
            if any((planned.instance_id, planned.attempt) == (unit.instance_id, unit.attempt) for planned in units):
                return
            if self._store.swap(name, old, Plan(run_id=self.run_id, units=[*units, unit]).to_bytes()):
                return
