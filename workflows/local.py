"""The chain as processes on this machine: plan, then every unit's steps with bounded parallelism, then report."""

from __future__ import annotations

import hashlib
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from steps.contracts.chain import GRADE, SOLVE, Step
from steps.contracts.data import Failure, FailureClass, GradeRecord, Plan, Stage, Unit
from steps.contracts.record import key
from steps.contracts.run import RunSpec
from steps.errors import EXIT_BUG, EXIT_CONFIG, EXIT_INFRA, EXIT_OK, EXIT_RESOURCE, ConfigError
from steps.settings import settings
from steps.store import Store, open_store
from workflows.machines import Machines, default_workers, machines
from workflows.process import Processes
from workflows.resources import MAX_RESOURCE_FACTOR, deadline_s, retry


@dataclass(frozen=True)
class Event:
    """Something a person watching a run wants to know."""

    unit: Unit
    kind: str
    """begun, done, retry, failed, stopped."""
    step: str = ""
    grade: GradeRecord | None = None
    failure: Failure | None = None
    pause_s: float = 0.0


Watch = Callable[[Event], None]

_MACHINE_LOST = (
    FailureClass.SANDBOX_CREATE,
    FailureClass.SANDBOX_LOST,
    FailureClass.EXEC,
    FailureClass.NODE_LOST,
    FailureClass.STEP_KILLED,
    FailureClass.STEP_TIMEOUT,
)
"""After these a machine may be left, or no machine may be had for a while."""


class StepFailedError(Exception):
    """A step of the whole run (plan, report) failed; ``message`` is what it said, for a person."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def make_plan(spec: RunSpec) -> Plan:
    """Run the plan step and read what it wrote. Raises StepFailedError."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(spec.model_dump_json())
        file.flush()
        _program("plan", "--spec", file.name)
    return Plan.from_bytes(open_store(spec.store).get(key(Plan, spec.run_id or "")))


def make_report(store_url: str, run_id: str) -> None:
    """Run the report step. Raises StepFailedError."""
    _program("report", "--store", store_url, "--run", run_id)


def _program(name: str, *flags: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"steps.{name}", *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
        env=os.environ | {"PYTHONUTF8": "1"},
    )
    if done.returncode != EXIT_OK:
        said = done.stderr.decode(errors="replace").strip()
        code = done.returncode if done.returncode in (EXIT_CONFIG, EXIT_INFRA, EXIT_BUG) else EXIT_BUG
        raise StepFailedError(said or f"{name} ended with exit code {done.returncode}", code)


@contextmanager
def alone(store_url: str, run_id: str) -> Iterator[None]:
    """Hold the run for this process. Raises ConfigError when another process on this machine works on it."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    where = store_url if "://" in store_url else str(Path(store_url).expanduser().resolve())
    folder = settings().home.expanduser() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(f'{where} {run_id}'.encode()).hexdigest()[:24]}.lock"
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            owner = file.read().strip()
            raise ConfigError(
                f"run {run_id!r} is being worked on by process {owner}; wait for it, stop it, or use another run id",
                field="run_id",
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


class Runner:
    """Works through a plan. ``watch`` is called from the workers, one call at a time."""

    def __init__(self, plan: Plan, store: Store, watch: Watch, spec: RunSpec) -> None:
        self._spec = spec
        self._plan = plan
        self._watch = watch
        self._units = plan.to_do
        self._processes = Processes(store, plan.run_id)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._broken: BaseException | None = None

    def work(self) -> None:
        """Run every unit that has something to do; returns when all have ended or ``stop`` was called.

        Raises what the store raised when it failed for good.
        """
        waiting: queue.SimpleQueue[Unit] = queue.SimpleQueue()
        for unit in self._units:
            waiting.put(unit)
        count = min(self._spec.workers or default_workers(self._spec.sandbox.backend), len(self._units))
        with machines(self._spec, self._plan) as care:
            self._processes.env = lambda: care.env
            workers = [threading.Thread(target=self._worker, args=(waiting, care), daemon=True) for _ in range(count)]
            for worker in workers:
                worker.start()
            for worker in workers:
                while worker.is_alive():  # a join without timeout would keep Ctrl-C waiting
                    worker.join(0.5)
        if self._broken:
            raise self._broken

    def stop(self, *, at_once: bool = False) -> None:
        """Begin no further step and end those that run; ``at_once`` does not wait for their sandboxes."""
        self._stop.set()
        self._processes.stop(at_once=at_once)

    def _worker(self, waiting: queue.SimpleQueue[Unit], care: Machines) -> None:
        while not self._stop.is_set():
            try:
                unit = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                self._unit(unit, care)
            except BaseException as error:  # noqa: BLE001 - told to the main thread, which raises it
                self._broken = error
                self.stop()
            care.done(unit)

    def _unit(self, unit: Unit, care: Machines) -> None:
        self._tell(Event(unit, "begun"))
        steps = (SOLVE, GRADE) if unit.begins is Stage.SOLVE else (GRADE,)
        for step in steps:
            if not self._step(step, unit, care):
                return
        self._tell(Event(unit, "done", grade=self._processes.verdict(unit)))

    def _step(self, step: Step, unit: Unit, care: Machines) -> bool:
        """Try a step until it is done, its retries are used up, or the run stops."""
        policy, failures, factor = retry(self._spec), 0, 1.0
        while not self._stop.is_set():
            tried = self._processes.attempt(step, unit, factor, deadline_s(step.name, self._spec))
            if tried.stopped:
                break
            if tried.failure is None:
                return True
            failures += 1
            again = tried.failure.exit_code in (EXIT_INFRA, EXIT_RESOURCE) and failures <= policy.limit
            if not again:
                self._tell(Event(unit, "failed", step.name, failure=tried.failure))
                return False
            if tried.failure.exit_code == EXIT_RESOURCE:
                factor = min(factor * 2, MAX_RESOURCE_FACTOR)
            pause = policy.pause_s(failures)
            self._tell(Event(unit, "retry", step.name, failure=tried.failure, pause_s=pause))
            self._stop.wait(pause)
            if tried.failure.failure_class in _MACHINE_LOST:
                care.recover(unit, self._stop)
        self._tell(Event(unit, "stopped", step.name))
        return False

    def _tell(self, event: Event) -> None:
        with self._lock:
            self._watch(event)
