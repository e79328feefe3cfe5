"""A made-up training and the runs of its steps, as plan, solve and grade leave them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from swe_argo.steps.contracts.data import DatasetLock, Plan, RunFile, Stage, Unit
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import TrainFile, TrainSpec, run_of
from swe_argo.steps.contracts.trajectory import Metrics, MetricsExtra, StopReason, Trajectory
from swe_argo.steps.contracts.verdict import Confirmation, ConfirmationOutcome, GradeRecord, Integrity, Outcome
from swe_argo.steps.store import Store
from tests.steps.agents.solved_units import agent_turn, grade, run_file, trajectory

NAME = "toy"


@dataclass(frozen=True)
class Try:
    """A rollout. ``reward`` None: no verdict. ``calls``: pairs of prompt and output; logprobs are -id / 8."""

    reward: float | None
    calls: tuple[tuple[list[int], list[int]], ...] = (([1, 2, 3], [4, 5]),)
    stop: StopReason = StopReason.FINISHED
    integrity: Literal["ok", "unconfirmed", "suspect"] = "ok"
    confirmation: ConfirmationOutcome | None = None
    weights: str | None = "base"
    tokens: bool = True
    outcome: Outcome | None = None
    """None: the one of the reward."""


MIXED = {"a": [Try(1.0), Try(0.0)]}
"""Rollouts of one group to learn from."""


def logprobs_of(ids: list[int]) -> list[float]:
    """Return the sampler's log probabilities, exact in float32."""
    return [-token_id / 8 for token_id in ids]


def make_training(store: Store, **spec: object) -> TrainFile:
    chosen = TrainSpec.model_validate({"name": NAME, "base_model": "test/model", "steps": 9, "seed": 5} | spec)
    lock = DatasetLock(name="verified", split="test", revision="c0ffee", rows=1, sha256="0" * 64)
    fields: dict[str, Any] = {"pool": ["a", "b"], "held_out": [], "versions": {}, "created_at": "2026-11-22"}
    training = TrainFile(name=chosen.name, spec=chosen, dataset=lock, **fields)
    store.put(key(TrainFile, chosen.name), training.to_bytes())
    return training


def make_run(store: Store, step: int, tries: dict[str, list[Try]], *, logprobs: bool = True) -> None:
    """Write the run of a step; ``tries``: instance -> its attempts."""
    name = run_of(NAME, step)
    run = run_file("r2egym", name, attempts=max(map(len, tries.values())), llm={"logprobs": logprobs})
    units = [
        Unit(instance_id=instance, attempt=number, begins=Stage.SOLVE, repo="django/django", image="i")
        for instance, attempts in tries.items()
        for number, _ in enumerate(attempts, 1)
    ]
    store.put(key(RunFile, name), run.to_bytes())
    store.put(key(Plan, name), Plan(run_id=name, units=units).to_bytes())
    for instance, attempts in tries.items():
        for number, one in enumerate(attempts, 1):
            store.put(key(Trajectory, name, instance, number), _trajectory(instance, one).to_bytes())
            if one.reward is not None:
                store.put(key(GradeRecord, name, instance, number), _grade(instance, one, one.reward).to_bytes())


def _trajectory(instance: str, one: Try) -> Trajectory:
    plain = trajectory(instance_id=instance)
    turns = [agent_turn(number, [], metrics=_metrics(one, *call)) for number, call in enumerate(one.calls, 3)]
    extra = plain.extra.model_copy(update={"stop_reason": one.stop})
    return plain.model_copy(update={"steps": [*plain.steps, *turns], "extra": extra})


def _metrics(one: Try, prompt: list[int], output: list[int]) -> Metrics:
    extra = MetricsExtra(fingerprint=one.weights, finish_reason="stop")
    if not one.tokens:
        return Metrics(prompt_tokens=len(prompt), extra=extra)
    return Metrics(prompt_token_ids=prompt, completion_token_ids=output, logprobs=logprobs_of(output), extra=extra)


def _grade(instance: str, one: Try, reward: float) -> GradeRecord:
    outcome = one.outcome or (Outcome.RESOLVED if reward >= 1 else Outcome.UNRESOLVED)
    confirmation = Confirmation(outcome=one.confirmation) if one.confirmation else None
    parts = {"integrity": Integrity(verdict=one.integrity), "confirmation": confirmation}
    return grade(outcome, instance).model_copy(update={"reward": reward, **parts})
