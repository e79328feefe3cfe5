"""Instances by their rollouts' results: those always or never solved teach nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from swe_argo.steps.contracts.training import StepFigures


@dataclass(frozen=True, slots=True)
class TrainedInstance:
    """An instance over all steps."""

    instance_id: str
    solved: int
    graded: int
    """Number of rollouts with a verdict."""
    last_step: int
    """The last step with rollouts of it."""


@dataclass(frozen=True, slots=True)
class InstanceClasses:
    """Classes of the pool's instances, each with those most often tried first."""

    always: list[TrainedInstance]
    sometimes: list[TrainedInstance]
    never: list[TrainedInstance]
    no_verdict: list[TrainedInstance]
    """Instances whose rollouts never had a verdict."""
    untried: int
    """Number of instances without rollouts so far."""


def classify_instances(steps: Sequence[StepFigures], pool: Iterable[str]) -> InstanceClasses:
    """Classify the instances of the pool by the rollouts of all steps."""
    solved: dict[str, int] = {}
    graded: dict[str, int] = {}
    last: dict[str, int] = {}
    for step in steps:
        for group in step.groups:
            one = group.instance_id
            solved[one] = solved.get(one, 0) + group.solved
            graded[one] = graded.get(one, 0) + len(group.rewards)
            last[one] = step.step
    seen = [TrainedInstance(one, solved[one], graded[one], last[one]) for one in last]
    seen.sort(key=lambda one: (-one.graded, one.instance_id))
    tried = [one for one in seen if one.graded]
    return InstanceClasses(
        always=[one for one in tried if one.solved == one.graded],
        sometimes=[one for one in tried if 0 < one.solved < one.graded],
        never=[one for one in tried if not one.solved],
        no_verdict=[one for one in seen if not one.graded],
        untried=len(set(pool) - set(last)),
    )
