"""Resolution of a spec: its dataset, instructions, images, endpoint and units."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from swe_argo.steps.agents import limit_notices, prepared, run_identity
from swe_argo.steps.agents.prompts import run_prompts
from swe_argo.steps.contracts.data import Plan, RunFile, Stage
from swe_argo.steps.contracts.progress_lines import print_progress
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.datasets import resource_factors
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.models import probe
from swe_argo.steps.planning.canary import plan_canary
from swe_argo.steps.planning.dataset import SelectedDataset, read_dataset
from swe_argo.steps.planning.program import resolve_program
from swe_argo.steps.planning.redo import RedoPlan, plan_redo
from swe_argo.steps.planning.refuse import refuse_changes, refuse_model
from swe_argo.steps.planning.sandbox_cost import cost_notices
from swe_argo.steps.planning.sandboxes import prepare_sandboxes
from swe_argo.steps.planning.units import plan_units
from swe_argo.steps.reports.known import known_doubts
from swe_argo.steps.store import Store
from swe_argo.steps.store.runs import read_record
from swe_argo.steps.versions import versions


@dataclass(frozen=True)
class Resolution:
    """A valid spec with everything derived from it."""

    run: RunFile
    plan: Plan
    rows: list[dict[str, Any]]
    factors: dict[str, float]
    """Instance id -> its resource factor, if it differs from the spec's."""
    files: dict[str, bytes]
    """Store key -> bytes of submissions that exist before any unit runs and are not in the store yet."""
    outdated: list[str]
    """Store keys of the canary's verdicts that are graded again."""
    redo: RedoPlan
    """The files of the run that are archived, to be redone."""


def resolve(spec: RunSpec, local_spec: RunSpec, store: Store) -> Resolution:
    """Resolve the spec; ``local_spec`` is the spec with all its files on this machine. Writes nothing.

    Raises ConfigError if the spec cannot work, InfraError if the hub, the store, the endpoint or the backend does not
    answer.
    """
    run_id = spec.run_id or ""
    previous = read_record(store, RunFile, run_id) if store.get_many([key(RunFile, run_id)]) else None
    hashes = run_identity.input_hashes(local_spec)
    if previous:
        refuse_changes(previous, spec, hashes)
    elif spec.redo:
        raise ConfigError(f"{spec.store} has no run {run_id!r}; only existing runs can be redone", field="redo")
    dataset = read_dataset(spec, local_spec, previous, store)
    program = resolve_program(spec, local_spec, previous)
    print_progress(f"reading the inputs of agent {spec.agent.name} for {len(dataset.rows):,} instances")
    submissions = prepared.prepare(local_spec, store, dataset.rows, dataset.known_ids)
    refuse_model(spec, submissions.model)
    print_progress("rendering the instructions")
    instruction, instruction_notices = run_prompts.read_instruction(local_spec.agent, dataset.rows, previous)
    words, words_notices = run_prompts.read_scaffold_words(local_spec.agent)
    factors = resource_factors.read(local_spec.sandbox.resource_factors, dataset.known_ids)
    sandboxes = prepare_sandboxes(spec, dataset.name, dataset.rows, dataset.environments, program)
    stored_keys = set(store.keys(f"runs/{run_id}/units/")) if previous else set()
    redo = plan_redo(spec, dataset.rows, store, stored_keys)
    stored_keys -= redo.removed
    units = plan_units(spec, run_id, dataset.rows, stored_keys | set(submissions.files))
    solves = any(unit.begins is Stage.SOLVE for unit in units)
    if spec.agent.model and solves:
        print_progress("testing the model endpoint with one small request")
    to_do = sum(unit.begins is not Stage.NONE for unit in units)
    canary = plan_canary(spec, dataset.rows, to_do, store, _find_doubtful(spec, store, dataset))
    model = probe.probe_for_run(spec, solves=solves, before=previous, program=program)
    unpredicted = sum(name.endswith(f"/{GradeRecord.file}") for name in submissions.files)
    notices = [
        *redo.notices,
        *dataset.notices,
        *submissions.notices,
        *limit_notices.describe_limits(spec),
        *instruction_notices,
        *words_notices,
        *sandboxes.notices,
        *cost_notices(spec, dataset.lock.name, units, sandboxes.usd_per_hour, store),
        *resource_factors.notices(spec.sandbox, factors.values()),
        *model.notices,
        *canary.notices,
        *([_unpredicted_notice(unpredicted, len(units), spec.attempts)] if unpredicted else []),
    ]
    run = RunFile(
        run_id=run_id,
        spec=spec.model_copy(
            update={"redo": [], "tags": _choose_tags(spec, previous)}
        ),  # this plan does the redo, once
        dataset=dataset.lock,
        model=submissions.model,
        versions=previous.versions if previous else versions(),
        created_at=previous.created_at if previous else datetime.now(UTC).isoformat(timespec="microseconds"),
        input_hashes=hashes,
        image_digests=sandboxes.digests,
        instruction=instruction,
        words=words,
        program=program,
        fn_calling=model.fn_calling,
        speaks=model.speaks,
        planning=model.usage,
        validation=dataset.validation,
        not_gradeable=dataset.not_gradeable,
        draw_key=(previous and previous.draw_key) or submissions.draw_key or secrets.token_hex(32),
    )
    return Resolution(
        run,
        Plan(run_id=run_id, units=units, notices=notices, canary=canary.units, unpredicted=unpredicted),
        dataset.rows,
        factors,
        {name: data for name, data in submissions.files.items() if name not in stored_keys} | canary.files,
        canary.outdated,
        redo,
    )


def _choose_tags(spec: RunSpec, previous: RunFile | None) -> list[str]:
    """Return the given tags, else those of the run."""
    return spec.tags or (previous.spec.tags if previous else [])


def _find_doubtful(spec: RunSpec, store: Store, dataset: SelectedDataset) -> set[str]:
    """Return instances that cannot test a machine: unfit by a validation, or with tests that flip."""
    if spec.canary == 0:
        return set()
    doubts = known_doubts(store, dataset.lock.name)
    return {*(dataset.validation.unfit if dataset.validation else ()), *doubts.unfit, *doubts.flips}


def _unpredicted_notice(unpredicted: int, units: int, attempts: int) -> str:
    """Return the notice about units without a prediction: they do not run, but count in the score."""
    verb = "has" if unpredicted == 1 else "have"
    return (
        f"{unpredicted} of {units} units {verb} no prediction and will not run; the score still counts "
        f"{units // attempts} instances, as the official summary does; select fewer with --ids-file or --instance"
    )
