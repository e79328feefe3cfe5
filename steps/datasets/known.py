"""Datasets with a short name, and their families, splits and sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from swe_argo.steps.datasets import names


@dataclass(frozen=True)
class KnownDataset:
    """A dataset with a short name."""

    name: str
    """The shortest name that --dataset accepts."""
    family: str
    splits: str
    """The splits with their numbers of instances, if known: ``test 300, dev 23``."""
    source: str
    """The hub id; ``bundled`` for a dataset of this project."""


_OF_HUB = {
    names.VERIFIED: ("swebench", "test 500"),
    names.LITE: ("swebench", "test 300, dev 23"),
    names.FULL: ("swebench", "test 2,294, dev 225"),
    names.MULTILINGUAL: ("swebench", "test 300"),
    names.MULTIMODAL: ("swebench", "dev 102, test"),
    "MariusHobbhahn/swe-bench-verified-mini": ("swebench", "test 50"),
    "R2E-Gym/R2E-Gym-Subset": ("r2e", "train 4,578"),
    "R2E-Gym/R2E-Gym-Lite": ("r2e", "train"),
    "R2E-Gym/R2E-Gym-V1": ("r2e", "train"),
    "SWE-bench/SWE-smith": ("swesmith", "train"),
    "SWE-bench/SWE-smith-py": ("swesmith", "train"),
    "SWE-Gym/SWE-Gym": ("swegym", "train 2,438"),
    "SWE-Gym/SWE-Gym-Lite": ("swegym", "train"),
    "nebius/SWE-rebench": ("rebench", "test"),
    "nebius/SWE-rebench-V2": ("rebench", "train 32,079"),
}
"""Hub id -> family, and splits with their numbers of rows from the dataset cards, if known."""


def list_known() -> Iterator[KnownDataset]:
    """Yield the known datasets, bundled ones first."""
    from swe_argo.steps.datasets import mini

    for name, family in names.BUNDLED.items():
        yield KnownDataset(name, family, f"test {len(list(mini.read_rows(name, 'test')[0])):,}", "bundled")
    for hub_id, (family, splits) in _OF_HUB.items():
        yield KnownDataset(names.short_name(hub_id), family, splits, hub_id)


def short_names() -> list[str]:
    """Return the names of the known datasets that --dataset accepts."""
    return [*names.BUNDLED, *map(names.short_name, _OF_HUB)]
