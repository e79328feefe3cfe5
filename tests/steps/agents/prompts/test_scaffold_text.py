"""A file with a scaffold's wording: plan validates it, and the model's prompts and observations use it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from swe_argo.steps.agents.prompts import scaffold_text
from swe_argo.steps.agents.tools.toolsets import toolset
from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.trajectory import StopReason, Trajectory
from swe_argo.steps.errors import ConfigError
from tests.model_server import Answer, call, function_text, model_server, play
from tests.paths import ROOT
from tests.steps.agents.prompts.test_run_prompts import planned_run, run_plan
from tests.steps.solve_process import observations
from tests.steps.test_solve_with_model import desk, solve

DOCUMENTED = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/scaffolds.md").read_text("utf-8"), re.DOTALL)[-1]


@pytest.mark.parametrize("fn_calling", [True, False], ids=["functions", "text"])
def test_conversation_uses_file_words(tmp_path: Path, fn_calling: bool) -> None:
    def does(name: str, **arguments: str) -> Answer:
        return call(name, **arguments) if fn_calling else function_text(name, "Now.", **arguments)

    script = play(
        does("execute_bash", cmd="echo seen; echo wrong >&2; exit 3"),
        does("file_editor", command="view", path="/testbed/a.py"),
        does("search", search_term="a = 2"),
        does("finish"),
    )
    with model_server(script) as server:
        solve_desk = desk(tmp_path, server, fn_calling=fn_calling)
        run: RunFile = RunFile.from_bytes((solve_desk.inputs / RunFile.file).read_bytes())
        solve_desk.put(run.model_copy(update={"words": DOCUMENTED}))
        result = solve(solve_desk)
        assert result.returncode == 0, result.stderr
        first = server.calls[0].body
    trajectory: Trajectory = solve_desk.get(Trajectory)
    system = trajectory.steps[0].message
    assert system.startswith("You mend a repository at /testbed. Call finish when that is done.\n")
    assert first["messages"][0] == {"role": "system", "content": system}
    if fn_calling:
        function = next(tool["function"] for tool in first["tools"] if tool["function"]["name"] == "execute_bash")
        assert function["description"] == "Run a command in the terminal."
        assert function["parameters"]["properties"]["cmd"]["description"] == "The command, in bash."
    else:
        assert "Run a command in the terminal." in system
        assert "The command, in bash." in system
    shell, edit, search, _ = observations(trajectory)
    footer = "\nSteps Remaining: "
    assert shell.startswith(f"<returncode>3</returncode>\n<output>\nseen\nwrong\n</output>{footer}")
    assert "     1 a = 2" in edit
    assert "Execution output of" not in edit
    assert "Execution output of [search]" in search, "a frame that is not in the file is the scaffold's own"
    assert solve_desk.get(Trajectory).extra.stop_reason is StopReason.FINISHED


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
    with model_server(play(Answer("ok"))) as server:

        def planned(source: str, **more: str) -> tuple[int, str]:
            mine.write_text(source)
            result = run_plan(tmp_path, server.url, **{"agent.scaffold_words": str(mine)} | more)
            return result.returncode, result.stderr

        code, message = planned("", **{"agent.name": "mini-swe-agent"})
        assert (code, "agent 'mini-swe-agent' is not a scaffold" in message) == (64, True)
        code, message = planned("system = 'Mend it.'")
        assert code == 0, message
        assert f"note: {mine}: the system prompt does not list the tools" in message
        run = planned_run(tmp_path)
        assert (run.words, list(run.input_hashes)) == ("system = 'Mend it.'", ["agent.scaffold_words"])
        code, message = planned("system = 'Break it.'")
        assert (code, "agent.scaffold_words" in message) == (64, True), "a run keeps the words that it began with"
