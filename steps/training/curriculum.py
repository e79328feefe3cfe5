"""Choice of a step's instances: shuffled epochs, with instances that teach nothing any more at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random

from swe_argo.steps.contracts.train_spec import CurriculumSpec
from swe_argo.steps.contracts.training import LearnedGroup


def choose_instances(
    pool: list[str], seed: int, groups: int, step: int, avoided_by_step: Mapping[int, frozenset[str]]
) -> list[str]:
    """Return the instances of a step, ``groups`` different ones, in the order of the epoch.

    Each epoch is the whole pool in a new order and continues where the step before ended. ``avoided_by_step``: step ->
    instances that it takes only if there are not enough others. The result depends on the arguments alone: the choices
    of all earlier steps are computed again.
    """
    remaining: list[str] = []
    chosen: list[str] = []
    epoch = 0
    for number in range(1, step + 1):
        avoided = avoided_by_step.get(number, frozenset())
        chosen = []
        # Take the epoch's next instance that is not avoided; begin an epoch if it has none but the pool has.
        while len(chosen) < groups:
            available = [instance for instance in remaining if instance not in avoided and instance not in chosen]
            if not available and set(pool) - avoided - set(chosen):
                epoch += 1
                remaining = _shuffled(pool, seed, epoch)
                continue
            # Only avoided instances are left: first those that this epoch passed over.
            candidates = available or [
                instance for instance in (*remaining, *_shuffled(pool, seed, epoch)) if instance not in chosen
            ]
            chosen.append(candidates[0])
            if candidates[0] in remaining:
                remaining.remove(candidates[0])
    return chosen


def _shuffled(pool: list[str], seed: int, epoch: int) -> list[str]:
    """Return the pool in the epoch's order, which is the same on every machine."""
    order = list(pool)
    Random(f"{seed}/{epoch}").shuffle(order)
    return order


def too_easy_or_hard(groups: Iterable[LearnedGroup], spec: CurriculumSpec) -> frozenset[str]:
    """Return the instances whose share of solved rollouts, in all ``groups``, is outside the limits of the spec.

    Those with fewer than ``spec.after`` graded rollouts do not count.
    """
    solved: Counter[str] = Counter()
    graded: Counter[str] = Counter()
    for group in groups:
        solved[group.instance_id] += group.solved
        graded[group.instance_id] += len(group.rewards)
    return frozenset(
        instance
        for instance, count in graded.items()
        if count >= spec.after and not spec.min_solved <= solved[instance] / count <= spec.max_solved
    )
