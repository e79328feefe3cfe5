"""The same rollouts in containers of a real engine."""

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
from swe_argo.steps.sandbox.docker.orphans import clean, find_orphans  # noqa: E402
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
    """A store of rows for backend docker."""
    monkeypatch.setenv("SWE_ARGO_MINI_BASE", base_image(docker_client))
    settings.cache_clear()
    yield plan_rows(tmp_path / "store", "docker")
    settings.cache_clear()


@pytest.fixture
def containers(docker_client: DockerClient) -> Callable[[], list[str]]:
    """The sandboxes of this process."""
    mine: dict[str, str | list[str] | bool] = {"label": ["swe-argo=sandbox", f"swe-argo/owner={process_owner()}"]}
    return lambda: [str(each.name) for each in docker_client.containers.list(all=True, filters=mine)]


def test_the_verdicts_are_those_of_folders(loops: Loops, store: str, containers: Callable[[], list[str]]) -> None:
    there: list[int] = []
    for patch, reward in ((GOLD, 1.0), ("", 0.0), (INVALID, 0.0)):
        script = play(call("bash", command="ls"), call("submit_solution", patch=patch))

        def answers(prompt: str, turn: int) -> str:
            there.append(len(containers()))
            return str(script(prompt, turn))  # noqa: B023 - of this round

        assert loops.play(store, INSTANCE, answers).reward_score == reward
        assert not containers()
    assert set(there) == {1}


def test_a_killed_process_leaves_no_container(store: str, tmp_path: Path) -> None:
    left = set()
    with doomed_processes(tmp_path, store) as kill_one:
        for _ in range(KILLS):
            before = left_behind()
            kill_one()
            assert not before & left_behind()  # it had put away what the one before it left
            left |= left_behind()
    assert left
    clean(left_behind())  # swe-argo clean
    assert not left_behind()


def left_behind() -> set[str]:
    """Of this run; others may use the engine."""
    return {name for name in find_orphans() if "-rows-" in name}
