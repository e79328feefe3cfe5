"""Computation of a step's figures."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import numpy as np

from swe_argo.steps.contracts.data import Plan
from swe_argo.steps.contracts.training import LearnedGroup, StepFigures, Weights
from swe_argo.steps.contracts.verdict import Outcome
from swe_argo.steps.training.advantages import Group
from swe_argo.steps.training.checkpoints import FIRST
from swe_argo.steps.training.datums import LearnedSample
from swe_argo.steps.training.sample_files import SampledUnit
from swe_argo.steps.training.step_samples import Collected
from swe_argo.steps.training.tinker_trainer import LearnedStep


def figures_of(
    step: int, collected: Collected, before: Weights, learned: LearnedStep | None, seconds: dict[str, float]
) -> StepFigures:
    """Return the figures of a step.

    ``before``: the weights before the step. ``learned``: the trainer's results, None if nothing was learnt.
    ``seconds``: duration by phase.
    """
    plan, rollouts, batch = collected.plan, collected.rollouts, collected.batch
    rewards = {unit: unit.reward for unit in rollouts}
    for group in collected.groups:
        # Rewards after the loss's rules replace the verdicts' own.
        rewards |= group.rewards_G
    calls = sum((rollout.calls for rollout in rollouts.values()), Counter())
    sampled = sum(rollout.sampled_tokens for rollout in rollouts.values())
    metrics = learned.metrics if learned else {}
    return StepFigures(
        step=step,
        run=plan.run_id,
        weights_used=dict(sorted(calls.items())),
        lag=lag_of(calls, before),
        groups=_groups(plan, rewards, collected.groups),
        rollouts=len(plan.units),
        learnt=batch.rollouts,
        infra_failures=collected.failed,
        reward_mean=_mean(rewards.values()),
        resolved_share=_mean(unit.outcome == Outcome.RESOLVED for unit in rollouts),
        prompt_tokens_mean=_mean(rollout.prompt_tokens for rollout in rollouts.values()),
        sampled_tokens_mean=_mean(rollout.sampled_tokens for rollout in rollouts.values()),
        turns_mean=_mean(rollout.calls.total() for rollout in rollouts.values()),
        kl=kl_of(batch.samples, learned.logprobs_D) if learned and learned.logprobs_D else None,
        entropy=-sum(rollout.logprob for rollout in rollouts.values()) / sampled if sampled else None,
        loss=metrics.get("loss:sum"),
        seconds={phase: round(spent, 3) for phase, spent in seconds.items()},
        tokens={
            "prompt": sum(rollout.prompt_tokens for rollout in rollouts.values()),
            "sampled": sampled,
            "trained": sum(len(sample.sampled_N) for sample in batch.samples),
        },
        metrics=metrics,
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def kl_of(samples: list[LearnedSample], logprobs_D: list[Any]) -> float:
    """Return the estimated KL(sampler || learner) per sampled token (k1, http://joschu.net/blog/kl-approx.html)."""
    total, tokens = 0.0, 0
    for sample, learner_N in zip(samples, logprobs_D, strict=True):
        total += float(np.sum(sample.logprobs_N - learner_N, dtype=np.float64, where=sample.sampled_N))
        tokens += int(np.count_nonzero(sample.sampled_N))
    return total / tokens


def lag_of(versions: Iterable[str], before: Weights) -> int:
    """Return by how many steps the oldest of these weights are behind; versions that are not steps are ignored."""
    steps = [number for version in versions if (number := _step_of_version(version)) is not None]
    return max(0, (_step_of_version(before.version) or 0) - min(steps, default=_step_of_version(before.version) or 0))


def _step_of_version(version: str) -> int | None:
    """Return the step that produced a version of the weights; None if it is not one of a training."""
    if version == FIRST.version:
        return 0
    return int(version) if version.isascii() and version.isdigit() else None


def _groups(plan: Plan, rewards: dict[SampledUnit, float], groups: list[Group]) -> list[LearnedGroup]:
    """Return rewards and solved rollouts of each planned instance; rollouts without a reward are missing."""
    planned = Counter(unit.instance_id for unit in plan.units)
    # Instances of the groups whose rewards differ; all units of a group have the same instance.
    varied = {next(iter(group.rewards_G)).instance_id for group in groups if not group.is_constant}
    units = {name: [unit for unit in rewards if unit.instance_id == name] for name in planned}
    return [
        LearnedGroup(
            instance_id=name,
            rewards=[rewards[unit] for unit in units[name]],
            solved=sum(unit.outcome == Outcome.RESOLVED for unit in units[name]),
            missing=count - len(units[name]),
            constant=name not in varied,
        )
        for name, count in planned.items()
    ]


def _mean(values: Iterable[float]) -> float | None:
    """Return the mean, None without values."""
    numbers = [float(value) for value in values]
    return statistics.fmean(numbers) if numbers else None
