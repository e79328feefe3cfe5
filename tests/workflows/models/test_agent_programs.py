"""An agent program of one's own behind the gateway, in whole runs: fixed, by the official verdict."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.sandbox.local import bubblewrap
from tests import small_agent, solutions
from tests.base_image import base_image
from tests.model_server import Answer, Call, Script, by_text, model_server, play
from tests.steps.agents.gateway.toolchain import needs_go
from tests.workflows.command import summary
from tests.workflows.models.run import KEY, evaluate, files_with, trajectory

if TYPE_CHECKING:
    from docker import DockerClient

pytestmark = needs_go
WAYS = [
    ("chat", "mini__slugkit-1", False),
    ("responses", "mini__ledgerlet-1", True),
    ("anthropic", "mini__plainconf-1", True),
]
isolated = pytest.mark.skipif(bubblewrap.probe() is not None, reason=f"{bubblewrap.probe()}")


def solving() -> Script:
    """A model that solves every mini instance by a tool that is bash."""
    answers = {
        str(row["problem_statement"]).partition("\n")[0]: play(
            Answer("I look.", calls=(Call("bash", {"command": "ls && git status --short"}),)),
            Answer("I mend.", calls=(Call("bash", {"command": f"git apply <<'END'\n{row['patch']}END"}),)),
            Answer("I test.", calls=(Call("bash", {"command": solutions.TESTS}),)),
            Answer("It is fixed."),
        )
        for row in solutions.rows().values()
    }
    return by_text(answers, otherwise=play(Answer("Ready.")))


@pytest.fixture
def containers(docker_client: DockerClient, docker_host: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine, and a base for the images of mini that needs no registry."""
    monkeypatch.setenv("SWE_ARGO_MINI_BASE", base_image(docker_client))


@isolated
@pytest.mark.parametrize(
    ("protocol", "instance", "stream"),
    [pytest.param(*way, id=way[0], marks=[] if way[0] == "responses" else pytest.mark.long) for way in WAYS],
)
def test_agent_program_solves_in_folder(protocol: str, instance: str, stream: bool, tmp_path: Path) -> None:
    fixed(protocol, instance, stream, tmp_path, "local")


@pytest.mark.docker
@pytest.mark.long
@pytest.mark.usefixtures("containers")
@pytest.mark.parametrize(("protocol", "instance", "stream"), WAYS, ids=[way[0] for way in WAYS])
def test_agent_program_solves_in_docker(protocol: str, instance: str, stream: bool, tmp_path: Path) -> None:
    fixed(protocol, instance, stream, tmp_path, "docker")


def fixed(protocol: str, instance: str, stream: bool, store: Path, backend: str) -> None:
    """Run it, and hold what is recorded against what the server counted."""
    words = shlex.join(["./small-agent", *small_agent.words(protocol, *(["--stream"] if stream else []))])
    program = ["--agent-command", words, "--agent-folder", str(small_agent.FOLDER), "--agent-protocol", protocol]
    with model_server(solving(), key=KEY) as server:
        result = evaluate(server, store, "program", *program, "--backend", backend, instances=[instance])
        counts = server.counts
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads((store / "runs" / "run" / "units" / instance / "1" / "report.json").read_text())
    assert report[instance]["resolved"] is True
    did = trajectory(store, instance)
    assert did.extra.stop_reason is StopReason.FINISHED
    assert [turn.message for turn in did.steps if turn.source == "agent"] == [
        "I look.",
        "I mend.",
        "I test.",
        "It is fixed.",
    ]
    assert (did.agent.name, did.extra.printed) == ("small-agent", "I look.\nI mend.\nI test.\nIt is fixed.\n")
    usage = summary(str(store), "run").cost.usage
    mine = (usage.calls, usage.requests, usage.prompt_tokens, usage.completion_tokens)
    assert mine == (counts.calls, counts.requests, counts.prompt_tokens, counts.completion_tokens)
    assert files_with(store, KEY) == []
