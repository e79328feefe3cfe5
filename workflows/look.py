"""Looking at what a store holds: all runs, one run, one unit."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from steps.contracts.data import Failure, GradeRecord, InstanceLog, Patch, Plan, RunFile, SolveRecord, TestLog
from steps.contracts.record import Place, key
from steps.errors import ConfigError
from steps.reports.summary import Summary
from steps.reports.visible import visible
from steps.store import Store
from workflows.session import tell

SHOWN = 20
"""Units that are listed under a run."""


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


def show(store: Store, run: str, instance: str | None, attempt: int, console: Console) -> None:
    """The end of a run and what did not go well, or all that is known of one unit. Raises ConfigError."""
    plan = _plan(store, run)
    if instance is None:
        if not store.get_many([key(Summary, run)]):
            raise ConfigError(f"run {run!r} has no report yet: swe-argo report {run}", field="run")
        tell(store, run, console)
        _not_resolved(store, run, plan, console)
        return
    if not any(unit.instance_id == instance and unit.attempt == attempt for unit in plan.units):
        raise ConfigError(f"run {run!r} has no instance {instance!r} with attempt {attempt}", field="instance")
    _unit(store, run, instance, attempt, console)


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


def _unit(store: Store, run: str, instance: str, attempt: int, console: Console) -> None:
    folder = Place.UNIT.format(run=run, instance=instance, attempt=attempt)
    kinds = (GradeRecord, SolveRecord, Patch, TestLog, InstanceLog)
    found = store.get_many(key(kind, run, instance, attempt) for kind in kinds)

    def of(kind: type[Patch] | type[TestLog] | type[InstanceLog]) -> str:
        return found.get(key(kind, run, instance, attempt), b"").decode(errors="replace")

    console.print(Text(f"{instance} #{attempt} of {run}", style="bold"))
    data = found.get(key(GradeRecord, run, instance, attempt))
    if data:
        _grade(GradeRecord.from_bytes(data), console)
    else:
        console.print("no verdict yet", style="red")
    for name in [name for name in store.keys(f"{folder}/tries/") if name.endswith(f"/{Failure.file}")]:
        failure = Failure.from_bytes(store.get(name))
        console.print(
            Text(
                f"failed try of {failure.step}, {failure.occurred_at}: {failure.failure_class.value}: {failure.reason}"
            )
        )
    for title, text, most in (("patch", of(Patch), 60), ("end of the test log", of(TestLog), 30)):
        if text:
            lines = text.splitlines()
            shown = lines[:most] if title == "patch" else lines[-most:]
            left = f", {len(lines) - len(shown)} lines left out" if len(lines) > len(shown) else ""
            console.print(Text(f"\n{title}{left}", style="bold"))
            console.print(Text("\n".join(visible(line) for line in shown), style="dim"), soft_wrap=True)
    console.print(Text(f"\nall files: {store.locate(folder)}"), soft_wrap=True)


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
