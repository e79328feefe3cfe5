"""Every agent that asks a model, in every format, solves an instance: in a folder and in a container."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import solutions
from tests.base_image import base_image
from tests.model_server import model_server
from tests.workflows.models.run import KEY, assert_resolved, assert_totals, evaluate

if TYPE_CHECKING:
    from docker import DockerClient

WAYS = [
    ("r2egym", True, "mini__gridprint-1"),
    ("r2egym", False, "mini__ledgerlet-1"),
    ("openhands", True, "mini__plainconf-1"),
    ("openhands", False, "mini__slotbook-2"),
    ("sweagent", True, "mini__slugkit-2"),
    ("sweagent", False, "mini__stalecache-1"),
    ("mini-swe-agent", True, "mini__ledgerlet-2"),
    ("mini-swe-agent", False, "mini__slugkit-1"),
    ("oneshot", False, "mini__plainconf-2"),
]
NAMES = [f"{scaffold}-{'functions' if fn_calling else 'text'}" for scaffold, fn_calling, _ in WAYS]
ways = pytest.mark.parametrize(("scaffold", "fn_calling", "instance"), WAYS, ids=NAMES)
some_ways = pytest.mark.parametrize(
    ("scaffold", "fn_calling", "instance"),
    [
        pytest.param(*way, id=name, marks=[] if name == "openhands-text" else pytest.mark.long)
        for name, way in zip(NAMES, WAYS, strict=True)
    ],
)


@pytest.fixture
def containers(docker_client: DockerClient, docker_host: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker, with a base for the images of mini that needs no registry."""
    monkeypatch.setenv("SWE_ARGO_MINI_BASE", base_image(docker_client))


@some_ways
def test_scaffold_solves_in_folder(scaffold: str, fn_calling: bool, instance: str, tmp_path: Path) -> None:
    solve(scaffold, fn_calling, instance, tmp_path, "local")


@pytest.mark.docker
@pytest.mark.long
@pytest.mark.usefixtures("containers")
@ways
def test_scaffold_solves_in_docker(scaffold: str, fn_calling: bool, instance: str, tmp_path: Path) -> None:
    solve(scaffold, fn_calling, instance, tmp_path, "docker")


def solve(scaffold: str, fn_calling: bool, instance: str, store: Path, backend: str) -> None:
    """Run the agent; compare the report with the server's totals."""
    words = ["--use-fn-calling", str(fn_calling).lower(), "--backend", backend]
    with model_server(solutions.solving(scaffold, fn_calling=fn_calling), key=KEY) as server:
        result = evaluate(server, store, scaffold, *words, instances=[instance])
    assert result.returncode == 0, result.stdout + result.stderr
    assert KEY not in result.stdout + result.stderr
    solved = assert_resolved(store, instance)
    assert solved.extra.usage.calls == len(solutions.answers(instance, scaffold, fn_calling=fn_calling))
    assert_totals(store, server.counts)
