"""Stopping a run: its Workflow and all its parts are asked to end, and what became of it is told."""

from __future__ import annotations

import time

from rich.console import Console

from steps.errors import ConfigError, InfraError
from workflows.argo.engine import Engine, Glance
from workflows.argo.names import runs_of, shards_of
from workflows.argo.watching import Run, end

POLL_S = 2.0


def stop(engine: Engine, run_id: str, console: Console, *, wait: bool) -> int:
    """The exit code: 0 or 3 as of ``swe-argo run`` when it has ended, 0 where nobody waits for that.

    Raises ConfigError where the run is not running.
    """
    found = engine.glance(runs_of(run_id))
    going = [each for each in found if not each.ended]
    if not going:
        ended = f"it ended, {found[-1].phase}" if found else f"no Workflow of it is in {engine.where}"
        raise ConfigError(f"it is not running: {ended}", field=f"run {run_id!r}")
    stopped: set[str] = set()
    for each in going:
        _stop(engine, each, stopped)
    if not wait:
        console.print(f"{run_id} is asked to stop", highlight=False)
        return 0
    run = Run(engine, run_id)
    with console.status(f"stopping {run_id}: what runs is being put away, then comes the report"):
        while True:
            try:
                run.look()
                if run.view and run.view.ended:
                    break
                for each in going:  # a part may have been made since
                    _stop(engine, each, stopped)
            except InfraError:
                pass  # it goes on by itself; so does this, when something answers again
            time.sleep(POLL_S)
    console.print(f"stopped {run_id}; to go on: swe-argo resume {run_id}", highlight=False)
    return end(engine, run, console)


def _stop(engine: Engine, workflow: Glance, stopped: set[str]) -> None:
    """A Workflow and its parts, each once. Argo stops no children by itself."""
    parts = [each for each in engine.glance(shards_of(workflow.name)) if not each.ended]
    for each in (workflow, *parts):
        if each.name not in stopped:
            engine.stop(each.name, waits=each.phase == "Pending")
            stopped.add(each.name)
