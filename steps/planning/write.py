"""Writer of a resolution's files to the store: the run, its plan, its instances and answers, and the plan's shards."""

from __future__ import annotations

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.chain import CANARY_SHARD
from swe_argo.steps.contracts.data import Answer, Instance, Plan, RunFile
from swe_argo.steps.contracts.progress_lines import print_progress
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
    print_progress(f"writing the plan of {len(plan.units):,} units to {store.url}")
    archive(store, resolution.redo)
    records = _row_records(resolution)
    row_files = {
        key(type(datum), run.run_id, datum.instance_id): datum.to_bytes()
        for records_of_row in records
        for datum in records_of_row
    }
    store.put_many({key(RunFile, run.run_id): run.to_bytes()} | row_files)
    if run.spec.grading.confirm != "never":
        copy_twins_in(store, run, records)
    store.delete_many(resolution.outdated)
    store.put_many(resolution.files)
    store.put(key(Plan, run.run_id), plan.to_bytes())


def archive(store: Store, redo: RedoPlan) -> None:
    """Archive files in the order of ``contracts.redone``, so that the next plan can finish an interrupted archiving."""
    if redo.copies:
        _archive(store, redo)
    store.delete_many(redo.marks)


def _archive(store: Store, redo: RedoPlan) -> None:
    """Copy the files to the archive and remove the originals, the verdicts last: a unit without one runs again."""
    store.copy_many(redo.copies)
    store.put_many(redo.files)
    verdicts = {name for name in redo.removed if name.endswith(f"/{GradeRecord.file}")}
    # Delete the summary before any verdict, and after the archive is complete: a report with a summary looks complete.
    store.delete_many([key(Summary, redo.run_id)])
    store.delete_many(redo.removed - verdicts)
    store.delete_many(verdicts)


def _row_records(resolution: Resolution) -> list[tuple[Instance, Answer]]:
    """Return (the part visible to agents, the answer) of each row."""
    spec = resolution.run.spec
    style = spec.agent.prompt_style if agent_of(spec.agent).takes_prompt_style else None
    records = []
    for row in resolution.rows:
        factor = resolution.factors.get(row["instance_id"], spec.sandbox.resource_factor)
        visible_instance = rows.to_instance(row, spec.agent.hints, style).model_copy(update={"resource_factor": factor})
        records.append((visible_instance, rows.to_answer(row)))
    return records


def write_shards(store: Store, plan: Plan, size: int, workflow: str) -> int:
    """Write the units to do as shards of ``size`` units for a run's Workflow; return the number of shards.

    Shards of earlier plans are removed. The canary is a shard of its own, which is not counted.
    """
    units = plan.to_do
    parts = [Shard.of(units[start : start + size]) for start in range(0, len(units), size)]
    shards = {shard_name(workflow, f"{number:05d}"): part for number, part in enumerate(parts)}
    if plan.canary_to_do:
        shards[shard_name(workflow, CANARY_SHARD)] = Shard.of(plan.canary_to_do)
    shard_files = {key(Shard, plan.run_id, name=name): part.to_bytes() for name, part in shards.items()}
    folder = Shard.place.value.format(run=plan.run_id)
    store.delete_many(set(store.keys(f"{folder}/")) - set(shard_files))
    store.put_many(shard_files)
    return len(parts)
