"""Resolution of a spec: its dataset, instructions, images, endpoint and units."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from swe_argo.steps.agents import limit_notices, prepared, run_identity
from swe_argo.steps.agents.prompts import run_prompts
from swe_argo.steps.contracts.data import Plan, RunFile, Stage
from swe_argo.steps.contracts.progress_lines import doing
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
from swe_argo.steps.store.runs import record_of
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
    """Store key -> bytes of the agent's submissions that exist before any unit runs and that the store lacks."""
    outdated: list[str]
    """Store keys of the canary's verdicts that are graded again."""
    redo: RedoPlan
    """The files of the run that are archived, to be redone."""


def resolve(spec: RunSpec, here: RunSpec, store: Store) -> Resolution:
    """Resolve the spec; ``here`` is the spec with all its files on this machine. Writes nothing.

    Raises ConfigError, InfraError.
    """
    run_id = spec.run_id or ""
    before = record_of(store, RunFile, run_id) if store.get_many([key(RunFile, run_id)]) else None
    hashes = run_identity.input_hashes(here)
    if before:
        refuse_changes(before, spec, hashes)
    elif spec.redo:
        raise ConfigError(f"there is no run {run_id!r} in {spec.store} to do anything of again", field="redo")
    dataset = read_dataset(spec, here, before, store)
    program = resolve_program(spec, here, before)
    doing(f"reading what agent {spec.agent.name} is given for {len(dataset.rows):,} instances")
    given = prepared.prepare(here, store, dataset.rows, dataset.known_ids)
    refuse_model(spec, given.model)
    doing("rendering the instructions")
    instruction, instruction_notices = run_prompts.read_instruction(here.agent, dataset.rows, before)
    words, words_notices = run_prompts.read_scaffold_words(here.agent)
    factors = resource_factors.read(here.sandbox.resource_factors, dataset.known_ids)
    sandboxes = prepare_sandboxes(spec, dataset.name, dataset.rows, dataset.environments, program)
    stored_keys = set(store.keys(f"runs/{run_id}/units/")) if before else set()
    redo = plan_redo(spec, dataset.rows, store, stored_keys)
    stored_keys -= redo.removed
    units = plan_units(spec, run_id, dataset.rows, stored_keys | set(given.files))
    solves = any(unit.begins is Stage.SOLVE for unit in units)
    if spec.agent.model and solves:
        doing(f"asking {spec.agent.model} a harmless question")
    to_do = sum(unit.begins is not Stage.NONE for unit in units)
    canary = plan_canary(spec, dataset.rows, to_do, store, _doubtful(spec, store, dataset))
    model = probe.probe_for_run(spec, solves=solves, before=before, program=program)
    absent = sum(name.endswith(f"/{GradeRecord.file}") for name in given.files)
    notices = [
        *redo.notices,
        *dataset.notices,
        *given.notices,
        *limit_notices.describe_limits(spec),
        *instruction_notices,
        *words_notices,
        *sandboxes.notices,
        *cost_notices(spec, dataset.lock.name, units, sandboxes.usd_per_hour, store),
        *resource_factors.notices(spec.sandbox, factors.values()),
        *model.notices,
        *canary.notices,
        *([_absence_notice(absent, len(units), spec.attempts)] if absent else []),
    ]
    run = RunFile(
        run_id=run_id,
        spec=spec.model_copy(update={"redo": [], "tags": _tags(spec, before)}),  # this plan does the redo, once
        dataset=dataset.lock,
        model=given.model,
        versions=before.versions if before else versions(),
        created_at=before.created_at if before else datetime.now(UTC).isoformat(timespec="microseconds"),
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
        draw_key=(before and before.draw_key) or given.draw_key or secrets.token_hex(32),
    )
    return Resolution(
        run,
        Plan(run_id=run_id, units=units, notices=notices, canary=canary.units, unpredicted=absent),
        dataset.rows,
        factors,
        {name: data for name, data in given.files.items() if name not in stored_keys} | canary.files,
        canary.outdated,
        redo,
    )


def _tags(spec: RunSpec, before: RunFile | None) -> list[str]:
    """Return the given tags, else those of the run."""
    return spec.tags or (before.spec.tags if before else [])


def _doubtful(spec: RunSpec, store: Store, dataset: SelectedDataset) -> set[str]:
    """Return instances that say nothing about a machine: unfit by a validation, or with tests that flip."""
    if spec.canary == 0:
        return set()
    known = known_doubts(store, dataset.lock.name)
    return {*(dataset.validation.unfit if dataset.validation else ()), *known.unfit, *known.flips}


def _absence_notice(absent: int, units: int, attempts: int) -> str:
    have = "has" if absent == 1 else "have"
    return (
        f"{absent} of {units} units {have} no prediction: nothing is run there, and the score's denominator stays "
        f"{units // attempts} instances, as in the official summary; --ids-file or --instance choose fewer"
    )
