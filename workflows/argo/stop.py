"""Stop a run on the cluster: request its Workflow and shards to end, and report the result."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.workflow_marks import Phase, runs_of, shards_of
from swe_argo.steps.errors import EXIT_INCOMPLETE, ConfigError, InfraError
from swe_argo.workflows.argo.engine import Engine, WorkflowHeader
from swe_argo.workflows.argo.status_display import describe_waits
from swe_argo.workflows.argo.watch import WatchedRun, end
from swe_argo.workflows.resources import PODS

POLL_S = 2.0
STANDSTILL_S = 300.0
"""Seconds without any change after which a stopping run is ended without its last step."""
CLOSING_S = PODS["finalize"].deadline_s
"""The limit while the last step runs, which has a deadline of its own."""


def stop(engine: Engine, run_id: str, console: Console, *, wait: bool) -> int:
    """Stop a run and return its exit code: 0 or 3 as of ``swe-argo run`` after its end; 0 without ``wait``.

    If the last step, which cleans up and reports, does not start, the run is ended without it (3).
    Raises ConfigError if the run is not running; InfraError if it does not end, because Argo's controller is down.
    """
    headers = engine.glance(runs_of(run_id))
    going = [each for each in headers if not each.has_ended]
    if not going:
        ending = f"it ended, {headers[-1].phase}" if headers else f"no Workflow of it is in {engine.where}"
        raise ConfigError(f"it is not running: {ending}", field=f"run {run_id!r}")
    halt = _Halt(engine, going)
    halt.ask()
    if not wait:
        console.print(f"{run_id} is asked to stop", highlight=False)
        return 0
    run = WatchedRun(engine, run_id)
    doing = f"stopping {run_id}: what runs is being put away, then comes the report"
    with console.status(doing) as status:
        stuck = halt.follow(run, lambda why: status.update(f"{doing}; {why}" if why else doing))
    again = f"to go on: swe-argo resume {run_id} --namespace {engine.namespace}"
    if stuck is not None:
        why = f": {stuck}" if stuck else ""
        console.print(
            f"stopped {run_id} without a report, for its last step did not begin{why}; {again}",
            highlight=False,
            soft_wrap=True,
        )
        return EXIT_INCOMPLETE
    console.print(f"stopped {run_id}", highlight=False)
    return end(engine, run, console)


@dataclass
class _Halt:
    """The Workflows of a run that is being stopped."""

    engine: Engine
    going: list[WorkflowHeader]
    requested: set[str] = field(default_factory=set)

    def ask(self) -> None:
        """Stop each Workflow and its shards, each once: Argo does not stop children by itself."""
        for workflow in self.going:
            for each in (workflow, *self._parts(workflow)):
                if each.name not in self.requested:
                    self.engine.stop(each.name, waits=each.phase == Phase.PENDING)
                    self.requested.add(each.name)

    def follow(self, run: WatchedRun, tell: Callable[[str], None]) -> str | None:
        """Wait for the end; return why the run was ended without its last step, or None if it was not."""
        last_change, place = time.monotonic(), _place(run)
        stuck: str | None = None
        while True:
            try:
                run.look()
                if place != (place := _place(run)):
                    last_change = time.monotonic()
                if run.view and run.view.has_ended:
                    break
                self.ask()  # a shard may have been created since
                why = "; ".join(describe_waits(run.view, run.parts)) if run.view else ""
                tell(why)
                closing = bool(run.view and run.view.closing)
                if time.monotonic() - last_change > (CLOSING_S if closing else STANDSTILL_S):
                    if stuck is not None:
                        raise InfraError(
                            FailureClass.STEP_TIMEOUT, _UNHEARD.format(name=run.name, why=why or "nothing")
                        )
                    stuck, last_change = "; ".join(describe_waits(run.view, [])) if run.view else "", time.monotonic()
                    self._terminate()
            except InfraError as error:
                if error.failure_class is FailureClass.STEP_TIMEOUT:
                    raise
                # The API is unreachable: the run continues by itself, and polling does when the API is back.
            time.sleep(POLL_S)
        if stuck is not None:
            self._remove_parts()
        return stuck

    def _terminate(self) -> None:
        for workflow in self.going:
            for each in (workflow, *self._parts(workflow)):
                self.engine.stop(each.name, waits=True)

    def _remove_parts(self) -> None:
        """Delete the shards: Argo frees all semaphore slots of a deleted Workflow, but only half if terminated."""
        for workflow in self.going:
            for each in self.engine.glance(shards_of(workflow.name)):
                self.engine.remove(each.name)

    def _parts(self, workflow: WorkflowHeader) -> list[WorkflowHeader]:
        return [each for each in self.engine.glance(shards_of(workflow.name)) if not each.has_ended]


def _place(run: WatchedRun) -> object:
    """Return the run's progress, without the messages of pending pods, which change all the time."""
    parts = [(each.number, each.phase, each.done_units, len(each.running)) for each in run.parts]
    return (run.view.phase, run.view.stage, run.view.closing, parts) if run.view else None


_UNHEARD = "workflow {name} does not end, though it was terminated: is Argo's workflow-controller running?"
