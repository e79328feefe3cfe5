"""A user's agent program behind the gateway, in whole runs."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from swe_argo.steps.sandbox.local import bubblewrap
from tests import small_agent, solutions
from tests.model_server import Answer, Call, Script, by_text, model_server, play
from tests.steps.gateway.toolchain import needs_go
from tests.workflows.models.run import KEY, assert_resolved, assert_totals, evaluate

pytestmark = needs_go
PROTOCOLS = ["chat", "responses", "anthropic"]
WAYS = [
    pytest.param("chat", "mini__slugkit-1", False, marks=pytest.mark.long),
    ("responses", "mini__ledgerlet-1", True),
    pytest.param("anthropic", "mini__plainconf-1", True, marks=pytest.mark.long),
]


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


@pytest.mark.parametrize(("protocol", "instance", "stream"), WAYS, ids=PROTOCOLS)
def test_agent_program_solves(protocol: str, instance: str, stream: bool, backend: str, tmp_path: Path) -> None:
    if backend == "local" and (reason := bubblewrap.probe()) is not None:
        pytest.skip(reason)
    words = shlex.join(["./small-agent", *small_agent.words(protocol, *(["--stream"] if stream else []))])
    program = ["--agent-command", words, "--agent-folder", str(small_agent.FOLDER), "--agent-protocol", protocol]
    with model_server(solving(), key=KEY) as server:
        result = evaluate(server, tmp_path, "program", *program, "--backend", backend, instances=[instance])
    assert result.returncode == 0, result.stdout + result.stderr
    solved = assert_resolved(tmp_path, instance)
    words_of_agent = ["I look.", "I mend.", "I test.", "It is fixed."]
    assert [turn.message for turn in solved.steps if turn.source == "agent"] == words_of_agent
    assert (solved.agent.name, solved.extra.printed) == ("small-agent", "".join(f"{line}\n" for line in words_of_agent))
    assert_totals(tmp_path, server.counts)
