"""Writing of a resolution to the store: RunFile, Plan, Instance x n, Answer x n, and the plan's shards."""

from __future__ import annotations

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.chain import CANARY_SHARD
from swe_argo.steps.contracts.data import Answer, Instance, Plan, RunFile
from swe_argo.steps.contracts.progress_lines import doing
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.shard import Shard, shard_name
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.families import rows
from swe_argo.steps.planning.redo import RedoPlan
from swe_argo.steps.planning.resolve import Resolution
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.store import Store
from swe_argo.steps.store.twins import copy_twins_in


def write(store: Store, resolution: Resolution) -> None:
    """Write the resolution. The plan comes last, so that everything it names exists."""
    run, plan = resolution.run, resolution.plan
    doing(f"writing the plan of {len(plan.units):,} units to {store.url}")
    put_away(store, resolution.redo)
    rows_read = _row_records(resolution)
    row_files = {
        key(type(datum), run.run_id, datum.instance_id): datum.to_bytes() for pair in rows_read for datum in pair
    }
    store.put_many({key(RunFile, run.run_id): run.to_bytes()} | row_files)
    if run.spec.grading.confirm != "never":
        copy_twins_in(store, run, rows_read)
    store.delete_many(resolution.outdated)
    store.put_many(resolution.files)
    store.put(key(Plan, run.run_id), plan.to_bytes())


def put_away(store: Store, redo: RedoPlan) -> None:
    """Archive in the order of ``swe_argo.steps.contracts.redone``: the next plan finishes a killed archiving."""
    if redo.copies:
        _put_away(store, redo)
    store.delete_many(redo.marks)


def _put_away(store: Store, redo: RedoPlan) -> None:
    store.copy_many(redo.copies)
    store.put_many(redo.files)
    verdicts = {name for name in redo.removed if name.endswith(f"/{GradeRecord.file}")}
    # After the files that the next plan continues from, before any verdict goes: a report of as many looks complete.
    store.delete_many([key(Summary, redo.run_id)])
    store.delete_many(redo.removed - verdicts)
    store.delete_many(verdicts)


def _row_records(resolution: Resolution) -> list[tuple[Instance, Answer]]:
    """Return, for each row, the parts that an agent may know and the parts that it may not."""
    spec = resolution.run.spec
    style = spec.agent.prompt_style if agent_of(spec.agent).takes_prompt_style else None
    records = []
    for row in resolution.rows:
        factor = resolution.factors.get(row["instance_id"], spec.sandbox.resource_factor)
        visible_instance = rows.to_instance(row, spec.agent.hints, style).model_copy(update={"resource_factor": factor})
        records.append((visible_instance, rows.to_answer(row)))
    return records


def write_shards(store: Store, plan_made: Plan, size: int, workflow: str) -> int:
    """Write the units to do as parts of ``size`` for a run's Workflow, and remove earlier parts."""
    todo = plan_made.to_do
    parts = [Shard.of(todo[start : start + size]) for start in range(0, len(todo), size)]
    named = {shard_name(workflow, f"{number:05d}"): part for number, part in enumerate(parts)}
    if plan_made.canary_to_do:
        named[shard_name(workflow, CANARY_SHARD)] = Shard.of(plan_made.canary_to_do)
    shard_files = {key(Shard, plan_made.run_id, name=name): part.to_bytes() for name, part in named.items()}
    folder = Shard.place.value.format(run=plan_made.run_id)
    store.delete_many(set(store.keys(f"{folder}/")) - set(shard_files))
    store.put_many(shard_files)
    return len(parts)
