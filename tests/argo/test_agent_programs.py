"""Agent programs on the real controller: their files from an image, their calls out of pods by the gateway."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from swe_argo.steps.bundles.stored import digest_tree
from tests import small_agent
from tests.agents.conversations import solving as solving_by_tools
from tests.argo.models import KEY, counted, credentials, endpoint, find_text, usage
from tests.argo.pipeline import Pipeline
from tests.cluster.agent_images import AgentRegistry, agent_registry, push
from tests.cluster.test_agent_programs import SHIPPED, pushed
from tests.model_server import Script
from tests.steps.gateway.toolchain import needs_go
from tests.workflows.command import summary
from tests.workflows.models.test_agent_programs import solving

pytestmark = needs_go
MODEL = "openai/scripted"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentRegistry]:
    with agent_registry(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


def test_own_program_resolves(tmp_path: Path, pipeline: Pipeline, registry: AgentRegistry) -> None:
    (tmp_path / "small-agent").write_bytes((small_agent.FOLDER / "small-agent").read_bytes())
    (tmp_path / "small-agent").chmod(0o755)
    image = push(registry, "small-agent", tmp_path, digest_tree(tmp_path))
    command = shlex.join(["./small-agent", *small_agent.words("responses", "--stream")])
    agent = {"name": "program", "command": command, "protocol": "responses", "image": image}
    resolved(pipeline, "small-agent", solving(), "mini__slugkit-1", agent)


@pytest.mark.agents
@pytest.mark.parametrize("agent", SHIPPED)
def test_real_agent_resolves(agent: str, pipeline: Pipeline, registry: AgentRegistry) -> None:
    instance = SHIPPED[agent]
    spec = {"name": agent, "image": pushed(agent, registry)}
    resolved(pipeline, agent, solving_by_tools(agent, instance), instance, spec)


def resolved(pipeline: Pipeline, run: str, script: Script, instance: str, agent: dict[str, str]) -> None:
    """Submit it; the verdict, and what was asked by the run's count and by the server's."""
    with endpoint(script) as server:
        credentials(pipeline, OPENAI_API_KEY=KEY, LLM_BASE_URL=server.url)
        spec = {"select": {"instance_ids": [instance]}, "agent": {**agent, "model": MODEL}}
        name = pipeline.submit(f"p-{run}", spec=spec)
        pipeline.succeeds(name)
        assert summary(pipeline.store, f"p-{run}").headline.resolved == 1, pipeline.describe(name)
        assert usage(pipeline.store, f"p-{run}") == counted(server)
    assert find_text(pipeline, KEY) == []
    assert pipeline.sandboxes() == []
