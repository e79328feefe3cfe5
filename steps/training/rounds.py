"""Plans of a training's runs: the rollouts of its steps, and the measurements."""

from __future__ import annotations

from typing import Any

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.run_spec import RunSpec, SelectSpec
from swe_argo.steps.contracts.train_spec import TrainSpec
from swe_argo.steps.contracts.training import StepFigures, TrainFile, held_out_run_of, run_of, step_name
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.store import Store
from swe_argo.steps.training.checkpoints import CheckpointLog
from swe_argo.steps.training.curriculum import choose_instances, too_easy_or_hard


def plan_rollouts(store: Store, training: TrainFile, step: int) -> RunSpec | None:
    """Return the run for a step's rollouts; None if the step is learnt already. Deterministic.

    Raises ConfigError if the training has no such step or cannot start it yet, InfraError if the store fails.
    """
    spec = training.spec
    learned = len(CheckpointLog(store, training.name).read())
    if step <= learned:
        return None
    if not 1 <= step <= spec.steps:
        raise ConfigError(f"{training.name} has steps 1 to {spec.steps}", field="step")
    if step - 1 - spec.max_lag > learned:
        behind = f"; a step may start at most {spec.max_lag} ahead" if spec.max_lag else ""
        raise ConfigError(f"{training.name} has learnt {learned} steps: step {step} is not due{behind}", field="step")
    chosen = choose_instances(training.pool, spec.seed, spec.groups, step, _avoided_by_step(store, training, step))
    own: dict[str, Any] = {"attempts": spec.group_size, "canary": spec.run.canary if step == 1 else 0}
    return _run(training, run_of(training.name, step), chosen, own)


def plan_measurement(store: Store, training: TrainFile, step: int) -> RunSpec | None:
    """Return the run that measures a step's weights on the held-out instances; step 0 has the initial weights.

    None if no measurement is due after this step, or if it is done. Raises InfraError if the store fails.
    """
    held_out = training.spec.held_out
    name = held_out_run_of(training.name, step)
    if not held_out.every or step % held_out.every or not training.held_out or store.get_many([key(Summary, name)]):
        return None
    llm = training.spec.run.llm.model_copy(update={"temperature": held_out.temperature, "logprobs": False})
    return _run(training, name, training.held_out, {"attempts": held_out.attempts, "canary": 0, "llm": llm})


def _run(training: TrainFile, run_id: str, instances: list[str], own: dict[str, Any]) -> RunSpec:
    """Return a run of the training; ``own``: its fields that differ from the training's ``run``."""
    spec: TrainSpec = training.spec
    llm = own.pop("llm", spec.run.llm).model_copy(update={"base_url": spec.proxy_url})
    common = {"run_id": run_id, "revision": training.dataset.revision, "select": SelectSpec(instance_ids=instances)}
    return spec.run.model_copy(update={**common, "llm": llm, **own})


def _avoided_by_step(store: Store, training: TrainFile, step: int) -> dict[int, frozenset[str]]:
    """Return for each step up to this one the instances that earlier steps make it take last.

    A step considers only steps that are learnt whenever it may start, ``max_lag`` ahead: its choice is the same whether
    it starts early or late.
    """
    limits, lag = training.spec.curriculum, training.spec.max_lag
    # No share is outside these limits.
    if limits.min_solved <= 0 and limits.max_solved >= 1:
        return {}
    names = {
        key(StepFigures, training.name, name=step_name(past_step)): past_step for past_step in range(1, step - lag)
    }
    files = {names[name]: StepFigures.from_bytes(data) for name, data in store.get_many(names).items()}
    behind = {}
    for number in range(1, step + 1):
        groups = [group for past_step, file in files.items() if past_step < number - lag for group in file.groups]
        behind[number] = too_easy_or_hard(groups, limits)
    return behind
