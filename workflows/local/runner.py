"""The runner of this machine: executes the steps of every unit in processes, with bounded parallelism."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.backends import backend_named
from swe_argo.steps.contracts.chain import GRADE, SOLVE, Step
from swe_argo.steps.contracts.data import Plan, Stage, Unit
from swe_argo.steps.contracts.failure import Failure, FailureClass
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.trajectory import Usage
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.errors import EXIT_INFRA, EXIT_RESOURCE
from swe_argo.steps.sandbox.care import Care, care_for
from swe_argo.steps.sandbox.group_folders import groups_of
from swe_argo.steps.store import Store
from swe_argo.workflows.local.machines import SteadyCare, default_graders, default_workers, recover
from swe_argo.workflows.local.model_gate import gate
from swe_argo.workflows.local.process import Processes, TryResult
from swe_argo.workflows.local.run_limits import RunLimits, StopReached, read_usage_before
from swe_argo.workflows.resources import deadline_s, retry


@dataclass(frozen=True)
class Event:
    """A progress event of a run."""

    unit: Unit
    kind: Literal["begun", "spent", "done", "retry", "failed", "stopped"]
    step: str = ""
    grade: GradeRecord | None = None
    failure: Failure | None = None
    pause_s: float = 0.0
    usage: Usage | None = None
    """Usage of the try that ended (kind ``spent``)."""
    seconds: float = 0.0
    """Duration of that try, as the report counts it."""


Watch = Callable[[Event], None]

_MACHINE_LOST = (
    FailureClass.SANDBOX_CREATE,
    FailureClass.SANDBOX_LOST,
    FailureClass.EXEC,
    FailureClass.NODE_LOST,
    FailureClass.STEP_KILLED,
    FailureClass.STEP_TIMEOUT,
)
"""Failures that may leave a machine behind, or that mean no machine is available for a while."""


class LocalRunner:
    """Executor of a plan. ``watch`` is called by the workers, one call at a time.

    ``env``: additional environment variables of the steps.
    """

    def __init__(
        self, plan: Plan, store: Store, watch: Watch, spec: RunSpec, env: Mapping[str, str] | None = None
    ) -> None:
        self._spec = spec
        self._plan = plan
        self._watch = watch
        self._env = env or {}
        self._units = plan.to_do
        self._processes = Processes(store, plan.run_id, spec)
        self._limits = RunLimits(spec, read_usage_before(store, plan.run_id) if spec.max_cost_usd else Usage())
        self._graders = threading.Semaphore(grader_count(spec))
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._broken: BaseException | None = None
        self._waiting: queue.SimpleQueue[Unit] = queue.SimpleQueue()

    @property
    def limit_reached(self) -> StopReached | None:
        """The limit that ended the run early; None after ``stop`` or a complete run."""
        return self._limits.closed

    @property
    def not_begun(self) -> int:
        """Number of units that were not started."""
        return self._waiting.qsize()

    def work(self) -> None:
        """Run every unit that has steps to do; return when all have ended, after ``stop``, or when a limit is reached.

        Raises the store's error if it failed for good.
        """
        for unit in self._units:
            self._waiting.put(unit)
        count = min(worker_count(self._spec), len(self._units))
        sandbox = self._spec.sandbox
        with (
            care_for(sandbox, self._plan) as own_care,
            groups_of(sandbox, self._plan) as groups,
            gate(self._spec) as door,
        ):
            care = SteadyCare(own_care)
            self._processes.env = lambda: {**self._env, **care.env, **groups, **door}
            threads = [threading.Thread(target=self._worker, args=(care,), daemon=True) for _ in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():  # a join without timeout would delay Ctrl-C
                    thread.join(0.5)
            self._processes.close()
        if self._broken:
            raise self._broken

    def stop(self, *, at_once: bool = False) -> None:
        """Start no further step and end the running ones; ``at_once`` does not wait for their sandboxes."""
        self._stop.set()
        self._processes.stop(at_once=at_once)

    def _worker(self, care: Care) -> None:
        while not self._stop.is_set() and self.limit_reached is None:
            try:
                unit = self._waiting.get_nowait()
            except queue.Empty:
                return
            try:
                self._unit(unit, care)
            except BaseException as error:  # noqa: BLE001 - the main thread raises it
                self._broken = error
                self.stop()
            care.finish_unit(unit)

    def _unit(self, unit: Unit, care: Care) -> None:
        self._tell(Event(unit, "begun"))
        steps = (SOLVE, GRADE) if unit.begins is Stage.SOLVE else (GRADE,)
        for step in steps:
            if not self._step(step, unit, care):
                return
        grade = self._processes.verdict(unit)
        self._limits.judged()
        self._tell(Event(unit, "done", grade=grade))

    def _step(self, step: Step, unit: Unit, care: Care) -> bool:
        """Run a step until it succeeds, its retries are used up, or the run stops."""
        policy, failures, factor = retry(self._spec), 0, 1.0
        while not self._stop.is_set():
            result = self._try(step, unit, factor)
            if result is None or result.stopped:
                break
            if result.failure is None:
                return True
            failures += 1
            if not is_tried_again(self._spec, result.failure, failures):
                self._fail(unit, step, result.failure)
                return False
            if result.failure.exit_code == EXIT_RESOURCE:
                factor *= 2  # the step caps the resulting resources, because it knows the base
            pause = policy.pause_s(failures)
            self._tell(Event(unit, "retry", step.name, failure=result.failure, pause_s=pause))
            self._stop.wait(pause)
            if result.failure.failure_class in _MACHINE_LOST:
                recover(care, unit, self._stop)
        self._tell(Event(unit, "stopped", step.name))
        return False

    def _try(self, step: Step, unit: Unit, factor: float) -> TryResult | None:
        """Run one try; return None if the run stopped while it waited."""
        with self._room(step) as came:
            if not came:
                return None
            result = self._processes.attempt(step, unit, factor, deadline_s(step.name, self._spec))
        if result.usage.requests:
            self._limits.count(result.usage)
        self._tell(Event(unit, "spent", step.name, usage=result.usage, seconds=result.seconds))
        return result

    @contextmanager
    def _room(self, step: Step) -> Iterator[bool]:
        """Wait for a grading slot; other steps need none. Yields False if the run stopped first."""
        if step is not GRADE:
            yield True
            return
        while not self._graders.acquire(timeout=1.0):
            if self._stop.is_set():
                yield False
                return
        try:
            yield True
        finally:
            self._graders.release()

    def _fail(self, unit: Unit, step: Step, failure: Failure) -> None:
        self._tell(Event(unit, "failed", step.name, failure=failure))
        self._limits.failed(failure)
        if self.limit_reached and self.limit_reached.failed:
            self.stop()

    def _tell(self, event: Event) -> None:
        with self._lock:
            self._watch(event)


def is_tried_again(spec: RunSpec, failure: Failure, failures: int) -> bool:
    """Return whether a step with this last failure is retried after ``failures`` failures in this runner."""
    return failure.exit_code in (EXIT_INFRA, EXIT_RESOURCE) and failures <= retry(spec).limit


def worker_count(spec: RunSpec) -> int:
    """Return the number of units that the spec runs at a time."""
    return spec.workers or default_workers(spec.sandbox.backend, asks_model=agent_of(spec.agent).asks_model)


def grader_count(spec: RunSpec) -> int:
    """Return how many units may be graded at a time; with a model, workers count units that wait for it."""
    if spec.workers and (not agent_of(spec.agent).asks_model or backend_named(spec.sandbox.backend).serves_pods):
        return spec.workers
    return default_graders(spec.sandbox.backend)
