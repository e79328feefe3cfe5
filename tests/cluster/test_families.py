"""The bundled example of every family in pods: gold resolves, an untouched repository does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.installed_chart import InstalledChart, leftovers
from tests.steps.families.bundled import DATASETS, count_resolved

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.mark.parametrize(("dataset", "size"), DATASETS.items())
def test_gold_resolves_and_idle_does_not(dataset: str, size: int, tmp_path: Path, installed: InstalledChart) -> None:
    pods = ("--backend", "kubernetes", "-j", "2")
    assert count_resolved(dataset, "gold", tmp_path, *pods, env=installed.environment) == f"{size} of {size}"
    assert count_resolved(dataset, "idle", tmp_path, *pods, env=installed.environment) == f"0 of {size}"
    assert leftovers(installed) == []
