"""Agent programs in pods: solved by the official verdict, behind the gateway, with files of an image and with none."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from swe_argo.steps.bundles.build import architecture_here
from swe_argo.steps.bundles.recipes import find_shipped, read_recipe
from swe_argo.steps.bundles.stored import digest_tree, stored_bundles
from tests import small_agent
from tests.agents.conversations import solving as solving_by_tools
from tests.cluster.agent_images import AgentRegistry, agent_registry, push
from tests.cluster.installed_chart import InstalledChart, leftovers
from tests.cluster.model_runs import assert_resolved, run_words
from tests.steps.gateway.toolchain import needs_go
from tests.workflows.command import swe_argo
from tests.workflows.models.test_agent_programs import solving

pytestmark = [pytest.mark.cluster, pytest.mark.slow, needs_go]

SHIPPED = {"claude-code": "mini__ledgerlet-1", "codex": "mini__plainconf-1"}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentRegistry]:
    with agent_registry(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


def test_program_may_need_no_files(tmp_path: Path, installed: InstalledChart) -> None:
    program = base64.b64encode((small_agent.FOLDER / "small-agent").read_bytes()).decode()
    run_it = f"import base64; exec(compile(base64.b64decode('{program}'), 'agent', 'exec'))"
    command = shlex.join(["python3", "-c", run_it, *small_agent.words("chat")])
    assert_resolved(installed, tmp_path / "store", solving(), "mini__slugkit-1", "--agent-command", command)


def test_program_has_files_from_an_image(tmp_path: Path, installed: InstalledChart, registry: AgentRegistry) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "small-agent").write_bytes((small_agent.FOLDER / "small-agent").read_bytes())
    (files / "small-agent").chmod(0o755)
    image = push(registry, "small-agent", files, digest_tree(files))
    command = shlex.join(["./small-agent", *small_agent.words("anthropic", "--stream")])
    flags = ["--agent-command", command, "--agent-protocol", "anthropic", "--agent-image", image]
    assert_resolved(installed, tmp_path / "store", solving(), "mini__plainconf-1", *flags)


def test_missing_agent_image_is_named(tmp_path: Path, installed: InstalledChart) -> None:
    words = run_words(tmp_path / "store", "mini__slugkit-1", "--agent", "codex")
    result = swe_argo(*words, env=installed.environment)
    assert result.returncode == 64
    assert "swe-argo agents push codex IMAGE, and pass the printed address as --agent-image" in result.stderr
    assert leftovers(installed) == []


@pytest.mark.agents
@pytest.mark.parametrize("agent", SHIPPED)
def test_real_agent_fixes_an_issue(
    agent: str, tmp_path: Path, installed: InstalledChart, registry: AgentRegistry
) -> None:
    flags = ["--agent", agent, "--agent-image", pushed(agent, registry)]
    script, instance = solving_by_tools(agent, SHIPPED[agent]), SHIPPED[agent]
    assert_resolved(installed, tmp_path / "store", script, instance, *flags)


def pushed(agent: str, registry: AgentRegistry) -> str:
    """The image of a shipped agent's files. Skips where they are not built."""
    version = read_recipe(find_shipped(agent)).version
    for stored in stored_bundles():
        if (stored.name, stored.version, stored.facts.architecture) == (agent, version, architecture_here()):
            return push(registry, agent, stored.files, stored.facts.digest)
    pytest.skip(f"{agent} {version} is not built here (make test-agents)")
