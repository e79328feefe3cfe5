"""Texts of a run: the prompt template, and the file with a scaffold's wording; read as plan reads them, and used."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.agents import loop, scaffold_text, templates
from swe_argo.steps.agents.scaffold_text import read_instruction
from swe_argo.steps.agents.tools.toolsets import toolset
from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.data import DatasetLock, RunFile
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.datasets import load
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.plan import plan
from swe_argo.steps.store import open_store
from tests.model_server import Answer, call, function_text, model_server, play
from tests.paths import ROOT
from tests.steps.agents.machine import Box
from tests.steps.agents.tasks import observations, open_task

ROWS = load.load("mini", "test").rows


def spec(**fields: Any) -> AgentSpec:
    return AgentSpec.model_validate({"name": "openhands", **fields})


def earlier_run(text: str) -> RunFile:
    lock = DatasetLock(name="d", split="test", revision=None, rows=1, sha256="0")
    fields = {"dataset": lock, "model": "m", "versions": {}, "created_at": "", "instruction": text}
    return RunFile(run_id="run", spec=RunSpec(run_id="run", agent=spec()), **fields)


def write_template(folder: Path, text: str) -> str:
    (folder / "mine.j2").write_text(text)
    return str(folder / "mine.j2")


def test_scaffold_uses_own_template() -> None:
    assert read_instruction(spec(), ROWS, None) == ((templates.PROMPTS / "openhands.j2").read_text(), [])


def test_some_agents_have_no_instruction() -> None:
    for name in ("gold", "idle", "replay", "oneshot", "mini-swe-agent"):
        assert read_instruction(spec(name=name), ROWS, None) == ("", [])
    with pytest.raises(ConfigError, match="'gold' does not use an instruction template"):
        read_instruction(spec(name="gold", instruction_template="openhands"), ROWS, None)


def test_resume_keeps_instruction(tmp_path: Path) -> None:
    one, two = (f"{{{{ problem_statement }}}} {word}" for word in ("one", "two"))
    assert read_instruction(spec(), ROWS, earlier_run(one))[0] == one
    chosen_spec = spec(instruction_template=write_template(tmp_path, one))
    assert read_instruction(chosen_spec, ROWS, earlier_run(one))[1] == []
    with pytest.raises(ConfigError, match=r"mine\.j2 changed since run 'run' began; use another run id"):
        read_instruction(chosen_spec, ROWS, earlier_run(two))


@pytest.mark.parametrize("name", ["r2egym", "mini-swe-agent"])
@pytest.mark.parametrize("text", ["", " \n", "{# nothing #}"])
def test_empty_template_is_refused(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=r"mine\.j2 renders to an empty text for mini__"):
        read_instruction(spec(name=name, instruction_template=write_template(tmp_path, text)), ROWS, None)


DOUBLES = "{% set n = namespace(x='a' * 1000) %}{% for a in range(9999) %}{% set n.x = n.x * 2 %}{% endfor %}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "rendering takes more than"),
        (DOUBLES, "exceeds"),
        ("{{ 10 ** (10 ** 10) }}", "exceeds"),
        ("{{ 'a' * 99999999999 }}", "exceeds"),
    ],
)
def test_endless_template_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str) -> None:
    monkeypatch.setattr(templates, "RENDER_S", 1)
    path = write_template(tmp_path, "{{ problem_statement }}\n" + text)
    with pytest.raises(ConfigError, match=rf"mine\.j2, line 2: .*{why}"):
        read_instruction(spec(instruction_template=path), ROWS, None)


def test_template_may_calculate(tmp_path: Path) -> None:
    text = "{{ problem_statement }}{{ '=' * 20 }}{{ 3 * 4 }}{{ 2 ** 10 }}{{ 1.5 * 2 }}"
    assert read_instruction(spec(instruction_template=write_template(tmp_path, text)), ROWS, None)[0] == text


def plan_run(folder: Path, url: str, **agent: Any) -> list[str]:
    """Plan a run of scaffold r2egym. Return the notices."""
    chosen = {"name": "r2egym", "model": "openai/m", "use_fn_calling": True, **agent}
    fields = {"run_id": "run", "store": str(folder / "store"), "llm": {"base_url": url}, "agent": chosen}
    return plan(RunSpec.model_validate(fields | {"sandbox": {"allow_host": True}})).notices


def planned_run(folder: Path) -> RunFile:
    return RunFile.from_bytes(open_store(str(folder / "store")).get(key(RunFile, "run")))


def test_plan_refuses_unknown_variable(tmp_path: Path) -> None:
    mine = write_template(tmp_path, "Fix this:\n{{ problem_statment }}")
    with model_server(play(Answer("ok"))) as server:
        with pytest.raises(
            ConfigError, match=r"mine\.j2, line 2: problem_statment is undefined \(did you mean problem_st"
        ):
            plan_run(tmp_path, server.url, instruction_template=mine)
        assert not list(tmp_path.rglob("run.json"))
        write_template(tmp_path, "{{ problem_statement }}")
        notices = plan_run(tmp_path, server.url, instruction_template=mine, hints=True)
    assert f"{mine} does not show hints: it has no hints_text" in notices
    run = planned_run(tmp_path)
    assert (run.instruction, run.fn_calling) == ("{{ problem_statement }}", True)


DOCUMENTED = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/scaffolds.md").read_text("utf-8"), re.DOTALL)[-1]


@pytest.mark.parametrize("fn_calling", [True, False], ids=["functions", "text"])
def test_conversation_uses_file_words(box: Box, fn_calling: bool) -> None:
    def does(name: str, **arguments: str) -> Answer:
        return call(name, **arguments) if fn_calling else function_text(name, "Now.", **arguments)

    script = play(
        does("execute_bash", cmd="echo seen; echo wrong >&2; exit 3"),
        does("file_editor", command="view", path="/testbed/a.py"),
        does("search", search_term="a = 2"),
        does("finish"),
    )
    with open_task(script, box.sandbox, "r2egym", fn_calling=fn_calling) as (task, server):
        task.scaffold_wording = DOCUMENTED
        assert loop.act(task) is StopReason.FINISHED
        first = server.calls[0].body
    system = task.recorder.turns[0].message
    assert system.startswith("You mend a repository at /testbed. Call finish when that is done.\n")
    assert first["messages"][0] == {"role": "system", "content": system}
    if fn_calling:
        function = next(tool["function"] for tool in first["tools"] if tool["function"]["name"] == "execute_bash")
        assert function["description"] == "Run a command in the terminal."
        assert function["parameters"]["properties"]["cmd"]["description"] == "The command, in bash."
    else:
        assert "Run a command in the terminal." in system
        assert "The command, in bash." in system
    shell, edit, search, _ = (result.content or "" for result in observations(task))
    footer = "\nSteps Remaining: "
    assert shell.startswith(f"<returncode>3</returncode>\n<output>\nseen\nwrong\n</output>{footer}")
    assert "     1 a = 2" in edit
    assert "Execution output of" not in edit
    assert "Execution output of [search]" in search, "a frame that is not in the file is the scaffold's own"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("system = ", r"words\.toml: Invalid value \(at"),
        ("sytem = 'a'", r"words\.toml: sytem is unknown \(did you mean system\?\)"),
        ("system = 3", r"words\.toml: system is not a text"),
        ("system = ' '", r"words\.toml, system: the template renders to an empty text"),
        ("system = '{{ tool }}'", r"words\.toml, system, line 1: tool is undefined \(did you mean tools\?\)"),
        ("system = '{% if %}'", r"words\.toml, system, line 1: Expected an expression"),
        ("tools = 1", r"words\.toml: tools is not a table"),
        (
            "tools.bash.description = 'a'",
            r"words\.toml: tools\.bash is unknown.*; known names: file_editor, execute_bash",
        ),
        ("tools.search.name = 'a'", r"words\.toml: tools\.search\.name is unknown.*description, parameters"),
        ("tools.search.parameters.file = 'a'", r"tools\.search\.parameters\.file is unknown.*search_term, path"),
        ("tools.search.description = ['a']", r"words\.toml: tools\.search\.description is not a text"),
        ("frames.bash = 'a'", r"words\.toml: frames\.bash is unknown.*shell, edit, search, note"),
        ("frames.shell = '{{ stdout }}'", r"words\.toml, frames\.shell, line 1: stdout is undefined"),
        ("frames.shell = '{{ exit_code + 1 }}'", r"words\.toml, frames\.shell, line 1: unsupported operand"),
    ],
)
def test_invalid_file_is_one_line_error(source: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        scaffold_text.check_wording(source, "words.toml", toolset("r2egym"))
    assert refused.value.reason.startswith("agent.scaffold_words: words.toml")
    assert "\n" not in refused.value.reason


def test_scaffolds_accept_every_frame(tmp_path: Path) -> None:
    frames = "\n".join(
        f"{kind} = '{{{{ {' }} {{ '.join(scaffold_text.FRAME_NAMES)} }}}}'" for kind in scaffold_text.KINDS
    )
    for name in ("r2egym", "openhands", "sweagent"):
        assert scaffold_text.check_wording(f"[frames]\n{frames}", "f", toolset(name)) == []


def test_plan_validates_and_stores_words(tmp_path: Path) -> None:
    mine = tmp_path / "words.toml"
    mine.write_text("system = 'Mend it.'")
    with model_server(play(Answer("ok"))) as server:
        with pytest.raises(ConfigError, match="agent 'mini-swe-agent' is not a scaffold"):
            plan_run(tmp_path, server.url, scaffold_words=str(mine), name="mini-swe-agent")
        notices = plan_run(tmp_path, server.url, scaffold_words=str(mine))
        assert any(notice.startswith(f"{mine}: the system prompt does not list the tools") for notice in notices)
        run = planned_run(tmp_path)
        assert (run.words, list(run.input_hashes)) == ("system = 'Mend it.'", ["agent.scaffold_words"])
        mine.write_text("system = 'Break it.'")
        with pytest.raises(ConfigError, match=r"agent\.scaffold_words"):
            plan_run(tmp_path, server.url, scaffold_words=str(mine))
