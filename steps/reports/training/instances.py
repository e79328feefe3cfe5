"""Instances by their rollouts' results: only instances solved sometimes give a learning signal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from swe_argo.steps.contracts.training import StepFigures


@dataclass(frozen=True, slots=True)
class TrainedInstance:
    """Results of an instance over all steps."""

    instance_id: str
    solved: int
    graded: int
    """Number of rollouts with a verdict."""
    last_step: int
    """The last step with rollouts of the instance."""


@dataclass(frozen=True, slots=True)
class InstanceClasses:
    """Instances of the pool by class, each in descending order of graded rollouts."""

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
            instance = group.instance_id
            solved[instance] = solved.get(instance, 0) + group.solved
            graded[instance] = graded.get(instance, 0) + len(group.rewards)
            last[instance] = step.step
    instances = [TrainedInstance(instance, solved[instance], graded[instance], last[instance]) for instance in last]
    instances.sort(key=lambda instance: (-instance.graded, instance.instance_id))
    with_verdict = [instance for instance in instances if instance.graded]
    return InstanceClasses(
        always=[instance for instance in with_verdict if instance.solved == instance.graded],
        sometimes=[instance for instance in with_verdict if 0 < instance.solved < instance.graded],
        never=[instance for instance in with_verdict if not instance.solved],
        no_verdict=[instance for instance in instances if not instance.graded],
        untried=len(set(pool) - set(last)),
    )
