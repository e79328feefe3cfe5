"""A user's agent program behind the gateway, in whole runs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from swe_argo.steps.sandbox.local import bubblewrap
from tests import small_agent, solutions
from tests.base_image import base_image
from tests.model_server import Answer, Call, Script, by_text, model_server, play
from tests.steps.gateway.toolchain import needs_go
from tests.workflows.models.run import KEY, assert_resolved, assert_totals, evaluate

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
    """Return a script that solves every instance of mini with a tool ``bash``."""
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
    """Docker, with a base for the images of mini that needs no registry."""
    monkeypatch.setenv("SWE_ARGO_MINI_BASE", base_image(docker_client))


@isolated
@pytest.mark.parametrize(
    ("protocol", "instance", "stream"),
    [pytest.param(*way, id=way[0], marks=[] if way[0] == "responses" else pytest.mark.long) for way in WAYS],
)
def test_agent_program_solves_in_folder(protocol: str, instance: str, stream: bool, tmp_path: Path) -> None:
    solve(protocol, instance, stream, tmp_path, "local")


@pytest.mark.docker
@pytest.mark.long
@pytest.mark.usefixtures("containers")
@pytest.mark.parametrize(("protocol", "instance", "stream"), WAYS, ids=[way[0] for way in WAYS])
def test_agent_program_solves_in_docker(protocol: str, instance: str, stream: bool, tmp_path: Path) -> None:
    solve(protocol, instance, stream, tmp_path, "docker")


def solve(protocol: str, instance: str, stream: bool, store: Path, backend: str) -> None:
    """Run the program; compare the records with the server's totals."""
    words = shlex.join(["./small-agent", *small_agent.words(protocol, *(["--stream"] if stream else []))])
    program = ["--agent-command", words, "--agent-folder", str(small_agent.FOLDER), "--agent-protocol", protocol]
    with model_server(solving(), key=KEY) as server:
        result = evaluate(server, store, "program", *program, "--backend", backend, instances=[instance])
    assert result.returncode == 0, result.stdout + result.stderr
    solved = assert_resolved(store, instance)
    words_of_agent = ["I look.", "I mend.", "I test.", "It is fixed."]
    assert [turn.message for turn in solved.steps if turn.source == "agent"] == words_of_agent
    assert (solved.agent.name, solved.extra.printed) == ("small-agent", "".join(f"{line}\n" for line in words_of_agent))
    assert_totals(store, server.counts)
