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


def before(text: str) -> RunFile:
    lock = DatasetLock(name="d", split="test", revision=None, rows=1, sha256="0")
    chosen_spec = RunSpec(run_id="run", agent=spec())
    return RunFile(
        run_id="run", spec=chosen_spec, dataset=lock, model="m", versions={}, created_at="", instruction=text
    )


def test_a_scaffold_is_instructed_by_its_own_template() -> None:
    assert read_instruction(spec(), ROWS, None) == ((templates.prompts_folder() / "openhands.j2").read_text(), [])


def test_agents_that_take_no_instruction_have_none() -> None:
    for name in ("gold", "idle", "replay", "oneshot", "mini-swe-agent"):
        assert read_instruction(spec(name=name), ROWS, None) == ("", [])
    with pytest.raises(ConfigError, match="'gold' is not instructed by a template"):
        read_instruction(spec(name="gold", instruction_template="openhands"), ROWS, None)


def test_a_run_goes_on_with_the_words_it_began_with() -> None:
    assert (
        read_instruction(spec(), ROWS, before("{{ problem_statement }} of then"))[0]
        == "{{ problem_statement }} of then"
    )


def test_a_file_that_changed_since_the_run_began_is_refused(tmp_path: Path) -> None:
    mine = tmp_path / "mine.j2"
    mine.write_text("{{ problem_statement }} one")
    chosen_spec = spec(instruction_template=str(mine))
    assert read_instruction(chosen_spec, ROWS, before("{{ problem_statement }} one"))[1] == []
    with pytest.raises(ConfigError, match=r"mine\.j2 changed since run 'run' began; use another run id"):
        read_instruction(chosen_spec, ROWS, before("{{ problem_statement }} two"))


@pytest.mark.parametrize("name", ["r2egym", "mini-swe-agent"])
@pytest.mark.parametrize("text", ["", " \n", "{# nothing #}"])
def test_a_file_that_says_nothing_is_refused(tmp_path: Path, name: str, text: str) -> None:
    mine = tmp_path / "mine.j2"
    mine.write_text(text)
    with pytest.raises(ConfigError, match=r"mine\.j2 says nothing about mini__"):
        read_instruction(spec(name=name, instruction_template=str(mine)), ROWS, None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "does not end within"),
        (
            "{% set n = namespace(x='a' * 1000) %}{% for a in range(9999) %}{% set n.x = n.x * 2 %}{% endfor %}",
            "makes more",
        ),
        ("{{ 10 ** (10 ** 10) }}", "makes more than"),
        ("{{ 'a' * 99999999999 }}", "makes more than"),
    ],
)
def test_a_template_that_does_not_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
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


def test_plan_refuses_a_template_that_names_what_there_is_not(tmp_path: Path) -> None:
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

        done = planned("Fix this:\n{{ problem_statment }}")
        assert done.returncode == 64
        assert done.stderr.count("\n") <= 1
        assert f"{mine}, line 2: problem_statment is undefined (did you mean problem_statement?)" in done.stderr
        assert not store.exists() or not list(store.rglob("run.json"))
        done = planned("{{ problem_statement }}", "--set=agent.hints=true")
        assert done.returncode == 0, done.stderr
        assert f"note: {mine} does not show hints: it has no hints_text" in done.stderr
    run = RunFile.from_bytes(open_store(str(store)).get(key(RunFile, "run")))
    assert run.instruction == "{{ problem_statement }}"
    assert run.fn_calling is True
