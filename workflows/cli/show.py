"""``swe-argo show``: a run, a unit or a training at a terminal."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from swe_argo.steps.contracts.data import RunFile, Unit
from swe_argo.steps.contracts.record import Place, key
from swe_argo.steps.contracts.training import run_of
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.reports.flakes.ledger import mark_flips, read_flips
from swe_argo.steps.reports.labels import standing_label
from swe_argo.steps.reports.reading import SHOWN_TESTS, first_line, read_unit
from swe_argo.steps.reports.stored_run import Standing, StoredUnit
from swe_argo.steps.reports.text.formatting import unit_name
from swe_argo.steps.reports.text.visible import WHOLE, cut_line, make_visible
from swe_argo.steps.reports.training.stored_training import read_training
from swe_argo.steps.reports.unit.conversation import read_conversation
from swe_argo.steps.reports.unit.view import standing_note, view_unit
from swe_argo.steps.store import Store
from swe_argo.steps.store.runs import read_record, store_flag
from swe_argo.steps.store.trainings import is_training
from swe_argo.workflows.api.run import Run
from swe_argo.workflows.terminal.columns import columns
from swe_argo.workflows.terminal.run_end import print_run_end
from swe_argo.workflows.terminal.training_lines import print_training
from swe_argo.workflows.terminal.unit_lines import LINE_WIDTH, describe_replays, unit_lines

MAX_UNITS = 20
"""Maximum number of unresolved units to list."""
REASON_WIDTH = 100


@dataclass(frozen=True)
class ShowOptions:
    """Options for showing a unit."""

    attempt: int = 1
    full: bool = False
    """Whether to shorten nothing."""
    paged: bool = True
    """Whether to use a pager at a terminal."""
    as_json: bool = False
    """Whether to print the trajectory file instead."""


def show(store: Store, run: str, instance: str | None, console: Console, options: ShowOptions) -> None:
    """Print the result of a run with its unresolved units, one unit with its trajectory, or a training's last steps.

    Raises ConfigError if there is no such run or unit, or an option does not apply.
    """
    if is_training(store, run):
        if instance is not None or options.as_json or options.attempt != 1:
            message = f"{run!r} is a training: name the run of one of its steps, {run_of(run, 1)!r} for the first"
            raise ConfigError(message, field="run")
        print_training(store, read_training(store, run), console)
        return
    stored = Run(store, run)
    if instance is None:
        if options.as_json:
            raise ConfigError("--json needs an instance: swe-argo show RUN ID --json", field="instance")
        if options.attempt != 1:
            raise ConfigError("--attempt needs an instance: swe-argo show RUN ID --attempt N", field="instance")
        _show_run(store, stored, console)
        return
    _show_unit(store, run, stored.planned_unit(instance, options.attempt), console, options)


def _show_run(store: Store, run: Run, console: Console) -> None:
    plan = run.plan
    summary = print_run_end(run, console)
    if summary.tags:
        console.print(Text(f"tags: {', '.join(summary.tags)}"), soft_wrap=True)
    for line in describe_replays(store, plan):
        console.print(line, soft_wrap=True)
    _print_unresolved(store, run, console)


def _show_unit(store: Store, run: str, planned: Unit, console: Console, options: ShowOptions) -> None:
    """Print a unit's verdict, turns, patch and log, or with ``as_json`` its trajectory file unchanged."""
    instance, attempt = planned.instance_id, planned.attempt
    width, max_tests = (WHOLE, WHOLE) if options.full else (LINE_WIDTH, SHOWN_TESTS)
    unit, unreadable = read_unit(store, run, planned, line_width=width, max_tests=max_tests)
    mark_flips([unit], read_flips(store, read_record(store, RunFile, run).dataset.name))
    name = unit.newest_trajectory
    folder = Place.UNIT.format(run=run, instance=instance, attempt=attempt)
    data = store.get(f"{folder}/{name}") if name else b""
    if options.as_json:
        if not name:
            raise ConfigError(f"{instance!r} has no trajectory in run {run!r}", field="instance")
        sys.stdout.write(data.decode())
        return
    conversation = None
    try:
        conversation = read_conversation(data) if name else None
    except ValueError as error:
        unreadable[f"{folder}/{name}"] = first_line(error)
    notices = [
        Text(f"{store.locate(file)} cannot be read: {reason}", style="red") for file, reason in unreadable.items()
    ]
    notices += [Text("the turns are from the newest try, which failed", style="yellow")] if "/" in name else []
    judged = key(GradeRecord, run, instance, attempt) not in unreadable
    view = view_unit(unit, conversation, {}, whole=options.full)
    with paged(console) if options.paged and console.is_terminal else nullcontext():
        for line in (
            Text(f"{instance} #{attempt} of {run}", style="bold"),
            *notices,
            *unit_lines(unit, view, full=options.full, judged=judged),
            Text(f"\nall files: {store.locate(folder)}"),
        ):
            console.print(line, soft_wrap=True)


@contextmanager
def paged(console: Console) -> Iterator[None]:
    """Collect the output and show it with the pager less, in colours, or print it if less is missing."""
    less = shutil.which("less")
    with console.capture() as caught:
        yield
    text = caught.get()
    if less is None:
        console.file.write(text)
        return
    # git's options: colours, and no pager for a text that fits the screen. Control characters were escaped before.
    with suppress(BrokenPipeError, KeyboardInterrupt):
        subprocess.run([less, "-FRX"], input=text.encode("utf-8", "replace"), check=False)


def _print_unresolved(store: Store, run: Run, console: Console) -> None:
    """Print the first unresolved units in the order of the plan, and the command that shows one."""
    units = [unit for unit in run.read().units if unit.standing is not Standing.RESOLVED]
    if not units:
        return
    rows = [(unit_name(unit.instance_id, unit.attempt), unit) for unit in units[:MAX_UNITS]]
    for line in ["", *columns([[name, _standing(unit), _reason(unit)] for name, unit in rows])]:
        console.print(Text(line), soft_wrap=True)
    if len(units) > MAX_UNITS:
        console.print(f"and {len(units) - MAX_UNITS:,} more; the report lists all", highlight=False)
    attempt = f" --attempt {units[0].attempt}" if units[0].attempt > 1 else ""
    command = f"swe-argo show {run.run_id} {units[0].instance_id}{attempt}{store_flag(store)}"
    console.print(Text(f"show one with: {command}", style="dim"), soft_wrap=True)


def _standing(unit: StoredUnit) -> str:
    return standing_label(unit.standing, unit.failure.failure_class if unit.failure else None).short


def _reason(unit: StoredUnit) -> str:
    note = standing_note(unit)
    return cut_line(make_visible(f"{note}: {unit.failure.reason}"), REASON_WIDTH) if unit.failure else note
