"""The real agent programs, unchanged and without a network: they fix mini instances by the official verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from swe_argo.steps.bundles.build import architecture_here
from swe_argo.steps.bundles.recipes import find_shipped, read_recipe, shipped_names
from swe_argo.steps.bundles.stored import stored_bundles
from swe_argo.steps.contracts.trajectory import StopReason
from tests.agents.conversations import answers, solving
from tests.base_image import base_image
from tests.model_server import model_server
from tests.workflows.command import summary
from tests.workflows.models.run import KEY, evaluate, files_with, trajectory

if TYPE_CHECKING:
    from docker import DockerClient

pytestmark = [pytest.mark.agents, pytest.mark.timeout(900)]

INSTANCES = {
    "claude-code": ("mini__ledgerlet-1", "mini__slugkit-2"),
    "codex": ("mini__plainconf-1", "mini__slotbook-2"),
}


@pytest.fixture
def containers(docker_client: DockerClient, docker_host: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine, and a base for the images of mini that needs no registry."""
    monkeypatch.setenv("SWE_ARGO_MINI_BASE", base_image(docker_client))


@pytest.mark.parametrize("agent", shipped_names())
def test_shipped_agent_solves_in_folder(agent: str, tmp_path: Path) -> None:
    check_solves(agent, tmp_path, "local")


@pytest.mark.docker
@pytest.mark.usefixtures("containers")
@pytest.mark.parametrize("agent", shipped_names())
def test_shipped_agent_solves_in_docker(agent: str, tmp_path: Path) -> None:
    check_solves(agent, tmp_path, "docker")


def check_solves(agent: str, store: Path, backend: str) -> None:
    """Run an agent; compare its report with the server's counts."""
    recipe = read_recipe(find_shipped(agent))
    built = {(item.name, item.version) for item in stored_bundles() if item.facts.architecture == architecture_here()}
    if (agent, recipe.version) not in built:
        pytest.skip(f"{agent} {recipe.version} is not built here (make test-agents)")
    instances = INSTANCES.get(agent, ("mini__slugkit-1",))
    with model_server(solving(agent, *instances), key=KEY) as server:
        result = evaluate(server, store, agent, "--backend", backend, instances=[*instances])
        counts = server.counts
    assert result.returncode == 0, result.stdout + result.stderr
    for instance in instances:
        report = json.loads((store / "runs" / "run" / "units" / instance / "1" / "report.json").read_text())
        whole = trajectory(store, instance)
        assert whole.extra.stop_reason is StopReason.FINISHED, whole.extra
        assert report[instance]["resolved"] is True
        assert whole.agent.version == recipe.version
        assert whole.extra.usage.calls >= len(answers(agent, instance))
    usage = summary(str(store), "run").cost.usage
    mine = (usage.calls, usage.requests, usage.prompt_tokens, usage.completion_tokens)
    assert mine == (counts.calls, counts.requests, counts.prompt_tokens, counts.completion_tokens)
    assert files_with(store, KEY) == []
