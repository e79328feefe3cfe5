"""Rollouts in Docker containers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.rollouts.stores import plan_rows
from tests.verl.conftest import doomed_processes

verl = pytest.importorskip("verl", reason="needs verl: make test-verl")
pytest.importorskip("docker")

from swe_argo.steps.host.folders import process_owner  # noqa: E402
from swe_argo.steps.sandbox.docker.container import clean, find_orphans  # noqa: E402
from swe_argo.steps.settings import settings  # noqa: E402
from tests.base_image import base_image  # noqa: E402
from tests.verl.loops import call, play  # noqa: E402
from tests.verl.test_tool_loop import GOLD, INSTANCE, INVALID  # noqa: E402

if TYPE_CHECKING:
    from docker import DockerClient

    from tests.verl.loops import Loops

pytestmark = pytest.mark.docker
KILLS = 3


@pytest.fixture
def store(
    docker_client: DockerClient, docker_host: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    monkeypatch.setenv("SWE_ARGO_MINI_BASE", base_image(docker_client))
    settings.cache_clear()
    yield plan_rows(tmp_path / "store", "docker")
    settings.cache_clear()


@pytest.fixture
def containers(docker_client: DockerClient) -> Callable[[], list[str]]:
    mine: dict[str, str | list[str] | bool] = {"label": ["swe-argo=sandbox", f"swe-argo/owner={process_owner()}"]}
    return lambda: [str(container.name) for container in docker_client.containers.list(all=True, filters=mine)]


def test_containers_give_equal_verdicts(loops: Loops, store: str, containers: Callable[[], list[str]]) -> None:
    counts: list[int] = []
    for patch, reward in ((GOLD, 1.0), ("", 0.0), (INVALID, 0.0)):
        script = play(call("bash", command="ls"), call("submit_solution", patch=patch))

        def answers(prompt: str, turn: int) -> str:
            counts.append(len(containers()))
            return str(script(prompt, turn))  # noqa: B023 - of this round

        assert loops.play(store, INSTANCE, answers).reward_score == reward
        assert not containers()
    assert set(counts) == {1}


def test_clean_removes_orphan_containers(store: str, tmp_path: Path) -> None:
    orphans = set()
    with doomed_processes(tmp_path, store) as kill_one:
        for _ in range(KILLS):
            before = list_orphans()
            kill_one()
            assert not before & list_orphans()  # a process removes the containers of its predecessor
            orphans |= list_orphans()
    assert orphans
    clean(list_orphans())  # swe-argo clean
    assert not list_orphans()


def list_orphans() -> set[str]:
    """Return the orphans of this run; others may use Docker, too."""
    return {name for name in find_orphans() if "-rows-" in name}
