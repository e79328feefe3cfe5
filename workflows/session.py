"""One run at a terminal: plan it, watch it, stop it cleanly, report it, and say how it ended."""

from __future__ import annotations

import signal
import threading
from types import FrameType

from rich.console import Console

from steps.contracts.data import Plan, Stage
from steps.contracts.record import key
from steps.contracts.run import RunSpec
from steps.errors import EXIT_INCOMPLETE, EXIT_OK
from steps.reports import terminal
from steps.reports.summary import Summary
from steps.store import Store, open_store
from workflows import local
from workflows.machines import default_workers
from workflows.progress import Progress

EXIT_INTERRUPTED = 130


def run(spec: RunSpec, console: Console, again: str) -> int:
    """Evaluate the wish on this machine; the same wish again does only what is missing. Returns the exit code.

    ``again``: the command that goes on with a stopped run, told when it stops.
    0: every unit has a verdict. 3: some have none. 130: stopped by Ctrl-C. Raises StepError and StepFailedError.
    """
    run_id = spec.run_id or ""
    with local.alone(spec.store, run_id):
        with console.status(f"planning {run_id}"):
            plan = local.make_plan(spec)
        store = open_store(spec.store)
        for notice in plan.notices:
            console.print(f"note: {notice}", style="dim", highlight=False, soft_wrap=True)
        todo = sum(unit.begins is not Stage.NONE for unit in plan.units)
        workers = min(spec.workers or default_workers(spec.sandbox.backend), max(todo, 1))
        done = len(plan.units) - todo
        console.print(
            f"{run_id}: {todo} {'unit' if todo == 1 else 'units'} to do"
            + (f", {done} done before" if done else "")
            + (f", {workers} at a time" if todo > 1 else ""),
            highlight=False,
        )
        stopped = _work(spec, plan, store, console)
        with console.status("writing the report"):
            local.make_report(spec.store, run_id)
        summary = tell(store, run_id, console)
    if stopped:
        console.print(f"stopped; to go on: {again}", highlight=False, soft_wrap=True)
        return EXIT_INTERRUPTED
    return EXIT_OK if summary.headline.graded == summary.headline.total else EXIT_INCOMPLETE


def tell(store: Store, run_id: str, console: Console) -> Summary:
    """Print the end of a run as the top of its report says it."""
    summary = Summary.from_bytes(store.get(key(Summary, run_id)))
    place = store.locate(f"runs/{run_id}/report/report.html")
    console.print("\n".join(terminal.lines(summary, place)), highlight=False, soft_wrap=True, markup=False)
    return summary


def _work(spec: RunSpec, plan: Plan, store: Store, console: Console) -> bool:
    """Work through the plan; whether it was stopped."""
    stop = threading.Event()
    with Progress(console, plan.units, plan.run_id) as progress:
        runner = local.Runner(plan, store, progress, spec)

        def interrupt(_number: int, _frame: FrameType | None) -> None:
            again = stop.is_set()
            stop.set()
            if not again:
                console.print("stopping: what runs is being put away (once more to drop it)", style="yellow")
            # In a thread: the handler may have interrupted whoever holds the runner's lock.
            threading.Thread(target=runner.stop, kwargs={"at_once": again}, daemon=True).start()

        before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            runner.work()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return stop.is_set()
