"""Looking at what a store holds: all runs, one run, one unit."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from steps.contracts.data import Failure, GradeRecord, InstanceLog, Patch, Plan, RunFile, SolveRecord, TestLog
from steps.contracts.record import Place, key
from steps.contracts.trajectory import Trajectory
from steps.datasets.names import did_you_mean
from steps.errors import ConfigError
from steps.reports.summary import Summary
from steps.reports.visible import tail, visible
from steps.reports.words import count
from steps.store import Store
from workflows import showing
from workflows.session import tell

SHOWN = 20
"""Units that are listed under a run."""
LOG_LINES, LOG_WIDTH = 30, 2000
"""Of the end of a test log."""


def runs(store: Store, console: Console) -> None:
    """A line a run, newest last."""
    names = store.folders("runs/")
    if not names:
        console.print(f"{store.url} holds no run yet; begin one with: swe-argo run")
        return
    found = store.get_many(name for run in names for name in (key(RunFile, run), key(Summary, run)))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("run", "agent", "dataset", "begun (UTC)", "resolved", "without verdict"):
        table.add_column(column, justify="right" if column in ("resolved", "without verdict") else "left")
    rows = []
    for run in names:
        data = found.get(key(RunFile, run))
        if data is None:
            continue
        file = RunFile.from_bytes(data)
        resolved, missing = "not reported yet", ""
        if key(Summary, run) in found:
            rate = Summary.from_bytes(found[key(Summary, run)]).headline
            resolved, missing = f"{rate.resolved}/{rate.total}", str(rate.total - rate.graded or "")
        begun = file.created_at[:16].replace("T", " ")
        rows.append((begun, (run, file.spec.agent.name, file.dataset.name, begun, resolved, missing)))
    for _, row in sorted(rows):
        table.add_row(*row)
    console.print(table)


@dataclass(frozen=True)
class How:
    """How a unit is shown: ``full`` folds nothing; ``paged`` at a terminal; ``as_json``: its trajectory's file."""

    attempt: int = 1
    full: bool = False
    paged: bool = True
    as_json: bool = False


def show(store: Store, run: str, instance: str | None, console: Console, how: How) -> None:
    """The end of a run and what did not go well, or all that is known of one unit, with its trajectory.

    Raises ConfigError.
    """
    plan = _plan(store, run)
    if instance is None:
        if how.as_json:
            raise ConfigError("--json prints the trajectory of one instance: name it", field="instance")
        if not store.get_many([key(Summary, run)]):
            raise ConfigError(f"run {run!r} has no report yet: swe-argo report {run}", field="run")
        tell(store, run, console)
        for line in showing.replays(store, plan):
            console.print(line, soft_wrap=True)
        _not_resolved(store, run, plan, console)
        return
    attempt = how.attempt
    attempts = [unit.attempt for unit in plan.units if unit.instance_id == instance]
    if not attempts:
        close = did_you_mean(instance, sorted({unit.instance_id for unit in plan.units}))
        raise ConfigError(f"run {run!r} has no instance {instance!r}{close}", field="instance")
    if attempt not in attempts:
        raise ConfigError(
            f"{instance!r} has {count(len(attempts), 'attempt')} in run {run!r}, not {attempt}", field="--attempt"
        )
    if how.as_json:
        found = showing.newest(store, run, instance, attempt)
        if found is None:
            raise ConfigError(f"{instance!r} has no trajectory in run {run!r}", field="instance")
        sys.stdout.write(found[1].decode())
        return
    with paged(console) if how.paged and console.is_terminal else nullcontext():
        _unit(store, run, instance, attempt, console, full=how.full)


@contextmanager
def paged(console: Console) -> Iterator[None]:
    """Collect what is printed and show it page by page, in colours where the pager is less."""
    less = shutil.which("less")
    with console.capture() as caught:
        yield
    text = caught.get()
    if less is None:
        console.file.write(text)
        return
    # As git calls it: colours, no pages for what fits the screen. What the text holds was made harmless before.
    with suppress(BrokenPipeError, KeyboardInterrupt):
        subprocess.run([less, "-FRX"], input=text.encode("utf-8", "replace"), check=False)


def _not_resolved(store: Store, run: str, plan: Plan, console: Console) -> None:
    """The first units that were not resolved, in the order of the plan, and how each can be looked at."""
    names = {key(GradeRecord, run, unit.instance_id, unit.attempt): unit for unit in plan.units}
    grades = {name: GradeRecord.from_bytes(data) for name, data in store.get_many(names).items()}
    rows = [(unit, grades.get(name)) for name, unit in names.items() if name not in grades or not grades[name].resolved]
    if not rows:
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    for unit, grade in rows[:SHOWN]:
        attempt = f" #{unit.attempt}" if unit.attempt > 1 else ""
        number = len(grade.failing_tests) if grade else 0
        failing = f"{number} {'test fails' if number == 1 else 'tests fail'}" if number else ""
        table.add_row(f"{unit.instance_id}{attempt}", grade.outcome.value.replace("_", " ") if grade else "-", failing)
    console.print()
    console.print(table)
    if len(rows) > SHOWN:
        console.print(f"and {len(rows) - SHOWN} more; the report has them all", highlight=False)
    console.print(f"one of them: swe-argo show {run} {rows[0][0].instance_id}", style="dim", highlight=False)


def _plan(store: Store, run: str) -> Plan:
    try:
        return Plan.from_bytes(store.get(key(Plan, run)))
    except FileNotFoundError:
        raise ConfigError(f"there is no run {run!r} in {store.url}; swe-argo runs lists them", field="run") from None


def _unit(store: Store, run: str, instance: str, attempt: int, console: Console, *, full: bool) -> None:
    folder = Place.UNIT.format(run=run, instance=instance, attempt=attempt)
    kinds = (GradeRecord, SolveRecord, Patch, TestLog, InstanceLog)
    found = store.get_many(key(kind, run, instance, attempt) for kind in kinds)
    console.print(Text(f"{instance} #{attempt} of {run}", style="bold"))
    data = found.get(key(GradeRecord, run, instance, attempt))
    if data:
        _grade(GradeRecord.from_bytes(data), console)
    else:
        console.print("no verdict yet", style="red")
    for name in [name for name in store.keys(f"{folder}/tries/") if name.endswith(f"/{Failure.file}")]:
        failure = Failure.from_bytes(store.get(name))
        told = f"failed try of {failure.step}, {failure.occurred_at}: {failure.failure_class.value}: {failure.reason}"
        console.print(Text(visible(told)), soft_wrap=True)
    solved = found.get(key(SolveRecord, run, instance, attempt))
    if solved and (replayed := SolveRecord.from_bytes(solved).replayed):
        console.print(Text(showing.replayed(replayed)), soft_wrap=True)
    _trajectory(store, (run, instance, attempt), console, full=full)
    patch = found.get(key(Patch, run, instance, attempt), b"")
    if patch.strip():
        console.print(Text("\npatch", style="bold"))
        for line in showing.diff(patch, full=full):
            console.print(line, soft_wrap=True)
    log = tail(found.get(key(TestLog, run, instance, attempt), b""), LOG_LINES, LOG_WIDTH)
    if log.lines:
        left = f", {log.left_out:,} lines before it left out" if log.left_out else ""
        console.print(Text(f"\nend of the test log{left}", style="bold"))
        for text in log.lines:
            console.print(Text(text, style="dim"), soft_wrap=True)
    console.print(Text(f"\nall files: {store.locate(folder)}"), soft_wrap=True)


def _trajectory(store: Store, unit: tuple[str, str, int], console: Console, *, full: bool) -> None:
    found = showing.newest(store, *unit)
    if found is None:
        return
    name, data = found
    console.print()
    if "/tries/" in name:
        console.print(Text("of its newest try, which failed:", style="yellow"))
    try:
        trajectory = Trajectory.from_bytes(data)
    except ValueError as error:  # pydantic's too
        reason = visible(str(error).splitlines()[0])
        console.print(Text(f"{store.locate(name)} cannot be read: {reason}", style="red"), soft_wrap=True)
        return
    for line in showing.lines(trajectory, full=full):
        console.print(line, soft_wrap=True)


def _grade(grade: GradeRecord, console: Console) -> None:
    console.print(Text(grade.outcome.value.replace("_", " "), style="green" if grade.resolved else "yellow"))
    if grade.fail_to_pass and grade.pass_to_pass:
        console.print(
            f"fail to pass {grade.fail_to_pass.passed}/{grade.fail_to_pass.total}, "
            f"pass to pass {grade.pass_to_pass.passed}/{grade.pass_to_pass.total}",
            highlight=False,
        )
    for test in grade.failing_tests[:20]:
        console.print(Text(f"  failing: {visible(test)}"), soft_wrap=True)
    if len(grade.failing_tests) > 20:
        console.print(f"  and {len(grade.failing_tests) - 20} more")
    for finding in grade.integrity.findings:
        style = "red" if grade.integrity.verdict == "suspect" else "dim"
        console.print(Text(f"  {finding.code}: {visible(finding.detail)}", style=style), soft_wrap=True)
    if grade.machine:
        machine = grade.machine
        times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in grade.seconds.items())
        console.print(
            f"{machine.backend} ({machine.isolation}), {machine.image}; {times}", highlight=False, soft_wrap=True
        )
