"""What plan does about the prompt: with the real rows of dataset mini, and as the program it is."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.agents.prompts import templates
from swe_argo.steps.agents.prompts.run_prompts import read_instruction
from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.data import DatasetLock, RunFile
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.datasets import load
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.store import open_store
from tests.forked_program import run_program
from tests.model_server import Answer, model_server, play
from tests.paths import ROOT

ROWS = load.load("mini", "test").rows


def spec(**fields: Any) -> AgentSpec:
    return AgentSpec.model_validate({"name": "openhands", **fields})


def earlier_run(text: str) -> RunFile:
    lock = DatasetLock(name="d", split="test", revision=None, rows=1, sha256="0")
    chosen_spec = RunSpec(run_id="run", agent=spec())
    return RunFile(
        run_id="run", spec=chosen_spec, dataset=lock, model="m", versions={}, created_at="", instruction=text
    )


def test_scaffold_uses_own_template() -> None:
    assert read_instruction(spec(), ROWS, None) == ((templates.prompts_folder() / "openhands.j2").read_text(), [])


def test_some_agents_have_no_instruction() -> None:
    for name in ("gold", "idle", "replay", "oneshot", "mini-swe-agent"):
        assert read_instruction(spec(name=name), ROWS, None) == ("", [])
    with pytest.raises(ConfigError, match="'gold' does not use an instruction template"):
        read_instruction(spec(name="gold", instruction_template="openhands"), ROWS, None)


def test_resume_keeps_instruction() -> None:
    assert (
        read_instruction(spec(), ROWS, earlier_run("{{ problem_statement }} of then"))[0]
        == "{{ problem_statement }} of then"
    )


def test_changed_template_is_refused(tmp_path: Path) -> None:
    mine = tmp_path / "mine.j2"
    mine.write_text("{{ problem_statement }} one")
    chosen_spec = spec(instruction_template=str(mine))
    assert read_instruction(chosen_spec, ROWS, earlier_run("{{ problem_statement }} one"))[1] == []
    with pytest.raises(ConfigError, match=r"mine\.j2 changed since run 'run' began; use another run id"):
        read_instruction(chosen_spec, ROWS, earlier_run("{{ problem_statement }} two"))


@pytest.mark.parametrize("name", ["r2egym", "mini-swe-agent"])
@pytest.mark.parametrize("text", ["", " \n", "{# nothing #}"])
def test_empty_template_is_refused(tmp_path: Path, name: str, text: str) -> None:
    mine = tmp_path / "mine.j2"
    mine.write_text(text)
    with pytest.raises(ConfigError, match=r"mine\.j2 renders to an empty text for mini__"):
        read_instruction(spec(name=name, instruction_template=str(mine)), ROWS, None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "rendering takes more than"),
        (
            "{% set n = namespace(x='a' * 1000) %}{% for a in range(9999) %}{% set n.x = n.x * 2 %}{% endfor %}",
            "exceeds",
        ),
        ("{{ 10 ** (10 ** 10) }}", "exceeds"),
        ("{{ 'a' * 99999999999 }}", "exceeds"),
    ],
)
def test_endless_template_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str) -> None:
    monkeypatch.setattr(templates, "RENDER_S", 1)
    mine = tmp_path / "mine.j2"
    mine.write_text("{{ problem_statement }}\n" + text)
    with pytest.raises(ConfigError, match=rf"mine\.j2, line 2: .*{why}"):
        read_instruction(spec(instruction_template=str(mine)), ROWS, None)


def test_a_template_may_multiply(tmp_path: Path) -> None:
    mine = tmp_path / "mine.j2"
    mine.write_text("{{ problem_statement }}{{ '=' * 20 }}{{ 3 * 4 }}{{ 2 ** 10 }}{{ 1.5 * 2 }}")
    text, _ = read_instruction(spec(instruction_template=str(mine)), ROWS, None)
    assert text == mine.read_text()


def test_plan_refuses_unknown_variable(tmp_path: Path) -> None:
    mine, store = tmp_path / "mine.j2", tmp_path / "store"
    with model_server(play(Answer("ok"))) as server:

        def planned(text: str, *more: str) -> subprocess.CompletedProcess[str]:
            mine.write_text(text)
            sets = {
                "run_id": "run",
                "store": str(store),
                "agent.name": "r2egym",
                "agent.model": "openai/m",
                "agent.instruction_template": str(mine),
                "agent.use_fn_calling": "true",
                "llm.base_url": server.url,
                "sandbox.allow_host": "true",
            }
            flags = [f"--set={name}={value}" for name, value in sets.items()]
            return run_program("swe_argo.steps.plan", [*flags, *more], ROOT)

        result = planned("Fix this:\n{{ problem_statment }}")
        assert result.returncode == 64
        assert result.stderr.count("\n") <= 1
        assert f"{mine}, line 2: problem_statment is undefined (did you mean problem_statement?)" in result.stderr
        assert not store.exists() or not list(store.rglob("run.json"))
        result = planned("{{ problem_statement }}", "--set=agent.hints=true")
        assert result.returncode == 0, result.stderr
        assert f"note: {mine} does not show hints: it has no hints_text" in result.stderr
    run = RunFile.from_bytes(open_store(str(store)).get(key(RunFile, "run")))
    assert run.instruction == "{{ problem_statement }}"
    assert run.fn_calling is True
