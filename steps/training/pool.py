"""Division of a dataset's instances into training pool and held-out instances."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from swe_argo.steps.contracts.train_spec import TrainSpec
from swe_argo.steps.errors import ConfigError


@dataclass(frozen=True)
class Division:
    """Two disjoint lists of ids, each in the dataset's order."""

    pool: list[str]
    held_out: list[str]


def divide(spec: TrainSpec, selected: list[str]) -> Division:
    """Choose the held-out instances: the ids in the spec, or a share by its seed; train on the rest.

    Ids in the spec are held out even if they are not among ``selected``. Raises ConfigError if fewer instances are left
    to train on than a step needs.
    """
    ids = spec.held_out.instance_ids
    if spec.held_out.share:
        count = max(1, round(spec.held_out.share * len(selected)))
        # A seed of text gives the same sample on every machine.
        ids = Random(f"{spec.seed}/held-out").sample(selected, min(count, len(selected)))
    chosen = set(ids)
    held_out = [instance_id for instance_id in selected if instance_id in chosen]
    held_out += [instance_id for instance_id in dict.fromkeys(ids) if instance_id not in set(selected)]
    pool = [instance_id for instance_id in selected if instance_id not in chosen]
    if spec.groups > len(pool):
        apart = f", with {len(held_out)} held out" if held_out else ""
        raise ConfigError(
            f"{spec.groups} instances per step are more than the {len(pool)} training instances{apart}",
            field="groups",
        )
    return Division(pool, held_out)
