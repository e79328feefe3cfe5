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

    Named ids need not be selected. Raises ConfigError if too few are left to train on.
    """
    named = spec.held_out.instance_ids
    if spec.held_out.share:
        count = max(1, round(spec.held_out.share * len(selected)))
        # The order of ids in a sample depends on the seed alone, on every machine.
        named = Random(f"{spec.seed}/held-out").sample(selected, min(count, len(selected)))
    chosen = set(named)
    held_out = [each for each in selected if each in chosen]
    held_out += [each for each in dict.fromkeys(named) if each not in set(selected)]
    pool = [each for each in selected if each not in chosen]
    if spec.groups > len(pool):
        apart = f", with {len(held_out)} held out" if held_out else ""
        raise ConfigError(
            f"{spec.groups} instances a step are more than the {len(pool)} that there are to train on{apart}",
            field="groups",
        )
    return Division(pool, held_out)
