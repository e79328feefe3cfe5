"""The bundled example of every family: gold resolves, an untouched repository does not, in folders and containers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from swe_argo.steps.sandbox.local import bubblewrap
from tests.base_image import base_image
from tests.steps.families.bundled import DATASETS, count_resolved

if TYPE_CHECKING:
    from docker import DockerClient

OUTSIDE = ("mini-r2e", "harbor:mini")
"""Those that put files outside of the repository."""


@pytest.mark.parametrize(
    ("agent", "share"), [("gold", 1), pytest.param("idle", 0, marks=pytest.mark.long)], ids=["gold", "idle"]
)
@pytest.mark.parametrize(
    ("dataset", "size"),
    [pytest.param(*item, marks=() if item[0] in OUTSIDE else pytest.mark.long) for item in DATASETS.items()],
)
def test_gold_resolves_in_folders(dataset: str, size: int, agent: str, share: int, tmp_path: Path) -> None:
    """Most are long: the tests of each family have such runs of rows of their own."""
    if dataset in OUTSIDE and (reason := bubblewrap.probe()) is not None:
        pytest.skip(f"hidden tests need a machine of their own: {reason}")
    assert count_resolved(dataset, agent, tmp_path) == f"{share * size} of {size}"


@pytest.mark.docker
@pytest.mark.usefixtures("docker_host")
@pytest.mark.parametrize(
    ("dataset", "size"),
    [pytest.param(*item, marks=() if item[0] == "harbor:mini" else pytest.mark.long) for item in DATASETS.items()],
)
@pytest.mark.long
def test_gold_resolves_in_containers(
    dataset: str, size: int, tmp_path: Path, docker_client: DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWE_ARGO_MINI_BASE", base_image(docker_client))
    assert count_resolved(dataset, "gold", tmp_path, "--backend", "docker") == f"{size} of {size}"
    assert count_resolved(dataset, "idle", tmp_path, "--backend", "docker") == f"0 of {size}"
