"""Every agent that asks a model, in every format, on this machine and in containers: fixed, by the official verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from swe_argo.steps.contracts.trajectory import StopReason
from tests import solutions
from tests.base_image import base_image
from tests.model_server import model_server
from tests.workflows.command import summary
from tests.workflows.models.run import KEY, evaluate, files_with, trajectory

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
SHORT = ("openhands-text", "mini-swe-agent-functions")
ways = pytest.mark.parametrize(("scaffold", "fn_calling", "instance"), WAYS, ids=NAMES)
some_ways = pytest.mark.parametrize(
    ("scaffold", "fn_calling", "instance"),
    [
        pytest.param(*way, id=name, marks=[] if name in SHORT else pytest.mark.long)
        for name, way in zip(NAMES, WAYS, strict=True)
    ],
)


@pytest.fixture
def containers(docker_client: DockerClient, docker_host: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine, and a base for the images of mini that needs no registry."""
    monkeypatch.setenv("SWE_ARGO_MINI_BASE", base_image(docker_client))


@some_ways
def test_scaffold_solves_in_folder(scaffold: str, fn_calling: bool, instance: str, tmp_path: Path) -> None:
    fixed(scaffold, fn_calling, instance, tmp_path, "local")


@pytest.mark.docker
@pytest.mark.long
@pytest.mark.usefixtures("containers")
@ways
def test_scaffold_solves_in_docker(scaffold: str, fn_calling: bool, instance: str, tmp_path: Path) -> None:
    fixed(scaffold, fn_calling, instance, tmp_path, "docker")


def fixed(scaffold: str, fn_calling: bool, instance: str, store: Path, backend: str) -> None:
    """Run it, and hold the report against what the server counted."""
    words = ["--use-fn-calling", str(fn_calling).lower(), "--backend", backend]
    with model_server(solutions.solving(scaffold, fn_calling=fn_calling), key=KEY) as server:
        result = evaluate(server, store, scaffold, *words, instances=[instance])
        counts = server.counts
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads((store / "runs" / "run" / "units" / instance / "1" / "report.json").read_text())
    assert report[instance]["resolved"] is True
    did = trajectory(store, instance)
    assert did.extra.stop_reason is StopReason.FINISHED
    assert did.extra.usage.calls == len(solutions.answers(instance, scaffold, fn_calling=fn_calling))
    usage = summary(str(store), "run").cost.usage
    mine = (usage.calls, usage.requests, usage.prompt_tokens, usage.completion_tokens)
    assert mine == (counts.calls, counts.requests, counts.prompt_tokens, counts.completion_tokens)
    assert files_with(store, KEY) == []
    assert KEY not in result.stdout + result.stderr
