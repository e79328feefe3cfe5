"""``swe-argo regrade``: grade a run's patches again, as a new run."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from swe_argo.steps.contracts.agent_spec import FROM_RUN, agent_of
from swe_argo.steps.contracts.agents import AgentKind
from swe_argo.steps.contracts.data import Plan, RunFile
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.run_spec import SelectSpec
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.reports.labels import STANDINGS
from swe_argo.steps.store import Store, open_store
from swe_argo.steps.store.runs import read_record, store_flag
from swe_argo.workflows.cli import session
from swe_argo.workflows.terminal.columns import columns


def regrade(run_id: str, store_url: str, workers: int | None, console: Console) -> int:
    """Grade a run's patches again as run ``<run>.regrade-<n>``, without changes to the old run.

    Returns the exit code. Raises ConfigError for an unknown run.
    """
    store = open_store(store_url)
    old = read_record(store, RunFile, run_id)
    name = _next_name(store, run_id)
    agent = old.spec.agent
    if agent_of(agent).kind is not AgentKind.CONTROL:  # graded although its patches are empty
        changes = {"name": "given", "predictions": f"{FROM_RUN}{run_id}", "trajectories": None, "model": old.model}
        agent = agent.model_copy(update=changes)
    update: dict[str, Any] = {"run_id": name, "agent": agent, "store": store_url, "revision": old.dataset.revision}
    if old.validation is not None or old.not_gradeable:
        # The same instances, even if there is a newer validation, or the old one is gone.
        planned = (unit.instance_id for unit in read_record(store, Plan, run_id).units)
        update["select"] = SelectSpec(instance_ids=list(dict.fromkeys(planned)))
    if workers:
        update["workers"] = workers
    resume_command = f"swe-argo regrade {run_id}{store_flag(store)}" + (f" --workers {workers}" if workers else "")
    code = session.run(old.spec.model_copy(update=update), console, resume_command)
    _print_changes(store, run_id, name, console)
    return code


def _next_name(store: Store, run_id: str) -> str:
    """Return the name of the first unfinished regrade, which is resumed, or the first free name."""
    run_ids = set(store.folders("runs/"))
    number = 1
    while f"{run_id}.regrade-{number}" in run_ids and _is_complete(store, f"{run_id}.regrade-{number}"):
        number += 1
    return f"{run_id}.regrade-{number}"


def _is_complete(store: Store, run_id: str) -> bool:
    """Return whether every unit of the run has a verdict."""
    try:
        plan = Plan.from_bytes(store.get(key(Plan, run_id)))
    except FileNotFoundError:
        return False
    keys = [key(GradeRecord, run_id, unit.instance_id, unit.attempt) for unit in plan.units]
    return len(store.get_many(keys)) == len(keys)


def _print_changes(store: Store, old: str, new: str, console: Console) -> None:
    """Print how many verdicts changed, and a table of those units."""
    units = [(unit.instance_id, unit.attempt) for unit in Plan.from_bytes(store.get(key(Plan, new))).units]
    before, after = (_outcomes(store, run, units) for run in (old, new))
    changed = [unit for unit in units if before[unit] != after[unit]]
    console.print(f"{len(units) - len(changed)} of {len(units)} verdicts unchanged", highlight=False)
    if changed:
        rows = [[unit[0], str(unit[1]), before[unit], after[unit]] for unit in changed]
        for line in columns([["instance", "attempt", old, new], *rows]):
            console.print(Text(line), soft_wrap=True)


def _outcomes(store: Store, run: str, units: list[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """Return each unit's outcome in the run, as a word for a person."""
    contents = store.get_many(key(GradeRecord, run, *unit) for unit in units)
    return {
        unit: STANDINGS[GradeRecord.from_bytes(contents[name]).outcome].short
        if (name := key(GradeRecord, run, *unit)) in contents
        else "no verdict"
        for unit in units
    }
