"""The scaffolds' tools: their names, their parameters and their observations."""

from __future__ import annotations

import re
from typing import Any

import pytest

from swe_argo.steps.agents.opening import SCAFFOLDS
from swe_argo.steps.agents.tools.handlers import Session
from swe_argo.steps.agents.tools.text import ToolObservation
from swe_argo.steps.agents.tools.tool import Toolset
from swe_argo.steps.agents.tools.toolsets import TOOLSETS, toolset
from swe_argo.steps.contracts.registry import AGENTS
from swe_argo.steps.sandbox.protocol import Sandbox

EDITING = ["command", "path", "file_text", "old_str", "new_str", "insert_line", "view_range"]
SHELLS = {"r2egym": ("execute_bash", "cmd"), "openhands": ("execute_bash", "command"), "sweagent": ("bash", "command")}
NAMES = sorted(TOOLSETS)


@pytest.fixture(params=NAMES)
def tools(request: pytest.FixtureRequest) -> Toolset:
    return toolset(request.param)


def call(tools: Toolset, machine: Sandbox | Session, name: str, **arguments: Any) -> ToolObservation:
    session = machine if isinstance(machine, Session) else Session(machine, 20.0)
    tool = tools.find(name)
    assert tool is not None
    return tools.perform(tool, arguments, session)


def shell(tools: Toolset, machine: Sandbox | Session, command: str, **more: Any) -> ToolObservation:
    name, parameter = SHELLS[tools.scaffold]
    return call(tools, machine, name, **{parameter: command}, **more)


# -- names and parameters


def test_tools_have_project_names() -> None:
    def listed(name: str) -> dict[str, list[str]]:
        return {tool.name: list(tool.by_name) for tool in toolset(name).tools}

    assert listed("r2egym") == {
        "file_editor": [*EDITING, "concise"],
        "execute_bash": ["cmd"],
        "search": ["search_term", "path"],
        "finish": ["command", "result"],
    }
    assert listed("openhands") == {
        "execute_bash": ["command", "is_input", "timeout"],
        "str_replace_editor": EDITING,
        "think": ["thought"],
        "finish": ["message"],
    }
    assert listed("sweagent") == {"bash": ["command"], "str_replace_editor": EDITING, "submit": []}


def test_definitions_are_valid_functions(tools: Toolset) -> None:
    for tool in tools.tools:
        function = tool.definition["function"]
        assert tool.definition["type"] == "function"
        assert set(function["parameters"]["required"]) <= set(function["parameters"]["properties"])
        assert all(parameter["description"] for parameter in function["parameters"]["properties"].values())
        assert len(function["description"]) <= 1024 * 4
    editor = next(tool for tool in tools.tools if tool.kind == "edit")
    assert editor.definition["function"]["parameters"]["properties"]["view_range"]["items"] == {"type": "integer"}


# -- observations


R2EGYM_FRAME = "Execution output of [execute_bash]:\n"
PYTHON = re.compile(r"(?m)^\[Python interpreter: /.*\]\n")
COMMANDS = {
    "echo hi; echo no >&2; exit 3": {
        "r2egym": f"Exit code: Error: Exit code 3\n{R2EGYM_FRAME}"
        "Error executing command:\n\n[STDOUT]\n\nhi \n\n[STDERR]\n\nno\n",
        "openhands": "hi\nno\n[The command completed with exit code 3.]\n[Current working directory: /testbed]\n"
        "[Command finished with exit code 3]",
        "sweagent": "OBSERVATION:\nhi\nno",
    },
    "printf '\\033[1m a\\r\\n'": {
        "r2egym": f"Exit code: 0\n{R2EGYM_FRAME}[STDOUT]\n\n a \n\n[STDERR]\n\n\n",
        "openhands": " a\r\n[The command completed with exit code 0.]\n[Current working directory: /testbed]\n"
        "[Command finished with exit code 0]",
        "sweagent": "OBSERVATION:\n a\r",
    },
    "false": {
        "r2egym": f"Exit code: Error: Exit code 1\n{R2EGYM_FRAME}"
        "Error executing command:\n\n[STDOUT]\n\n \n\n[STDERR]\n\n\n",
        "openhands": "\n[The command completed with exit code 1.]\n[Current working directory: /testbed]\n"
        "[Command finished with exit code 1]",
        "sweagent": "The command ran successfully and printed nothing.",
    },
}


@pytest.mark.parametrize("command", COMMANDS)
def test_output_has_the_project_frame(tools: Toolset, machine: Sandbox, command: str) -> None:
    """The expected texts were printed by R2E-Gym's tool, OpenHands' shell and SWE-agent's template."""
    observation = shell(tools, machine, command)
    assert PYTHON.sub("", observation.text) == COMMANDS[command][tools.scaffold]
    assert (observation.timed_out, observation.cut, observation.ends) == (False, False, False)
    assert observation.seconds > 0
    assert observation.exit_code == {"f": 1, "e": 3, "p": 0}[command[0]]


def test_our_frame_shows_the_exit_code(machine: Sandbox) -> None:
    expected = {
        "r2egym": "Exit code: 3\nExecution output of [execute_bash]:\nhi\n",
        "openhands": "hi\n[The command completed with exit code 3.]",
        "sweagent": "OBSERVATION:\nhi\n[exit code: 3]",
    }
    for name, text in expected.items():
        assert shell(toolset(name, "ours"), machine, "echo hi; exit 3").text == text
    for timeout_s in (2.0, 20.0):  # a busy machine may need longer to begin
        late = shell(toolset("sweagent", "ours"), Session(machine, timeout_s), "echo begun; sleep 60")
        if "begun" in late.text:
            break
    assert late.text.startswith("OBSERVATION:\nbegun\n")
    assert late.text.endswith("[exit code: none]")
    assert call(toolset("r2egym", "ours"), machine, "file_editor", command="view", path="/testbed/b").exit_code == 0
    assert call(toolset("sweagent", "ours"), machine, "submit").ends


def test_openhands_shows_shell_state(machine: Sandbox) -> None:
    tools, session = toolset("openhands"), Session(machine, 20.0)
    result = shell(tools, session, "mkdir -p /testbed/b/bin; cd b; printf '#!/bin/sh' >bin/python; chmod +x bin/python")
    assert "\n[Current working directory: /testbed/b]\n" in result.text
    shell(tools, session, "PATH=/testbed/b/bin:$PATH")
    assert "\n[Python interpreter: /testbed/b/bin/python]\n" in shell(tools, session, "true").text
    shell(tools, session, "rm -r /testbed/b/bin")


def test_slow_command_ends_or_runs_on(tools: Toolset, machine: Sandbox) -> None:
    """OpenHands leaves it running and polls it; the others end it."""
    for timeout_s in (2.0, 20.0):  # a busy machine may need longer to begin
        observation = shell(tools, session := Session(machine, timeout_s), "echo begun; sleep 60")
        if "begun" in observation.text or tools.scaffold == "r2egym":
            break
    if tools.scaffold == "openhands":
        assert "still running" in observation.text
        assert "exit code" not in observation.text
        assert shell(tools, session, "C-c", is_input="true").exit_code == 130
    else:
        assert "took too long" in observation.text
    assert ("begun" in observation.text) == (tools.scaffold != "r2egym")
    assert observation.timed_out == (tools.scaffold != "openhands")
    assert observation.exit_code is None


def test_model_timeout_may_exceed_ours(machine: Sandbox) -> None:
    tools = toolset("openhands")
    assert "\nlast\n" in shell(tools, Session(machine, 1.0), "sleep 1.5; echo; echo last", timeout=20).text
    session = Session(machine, 1.0)
    session.left_s = 1.5
    ended = shell(tools, session, "sleep 60", timeout=50)
    assert ended.timed_out, "but no command outlives its attempt"


def test_output_is_cut_per_project(tools: Toolset, machine: Sandbox) -> None:
    observation = shell(tools, machine, "seq 1 1000000")
    assert observation.cut
    lines = observation.text.splitlines()
    if tools.scaffold == "r2egym":
        assert "38" in lines, "its frame counts"
        assert "39" not in lines
        assert lines[-4:] == ["1000000 ", "", "[STDERR]", ""]
        assert "999965" in lines
        assert "999964" not in lines
    elif tools.scaffold == "openhands":
        assert 30_000 <= len(observation.text) <= 30_400
        assert "1000000" in lines
    else:
        assert 100_000 <= len(observation.text) <= 100_400
        assert "1000000" not in lines


@pytest.mark.parametrize("size", [100, 5000])
def test_observation_limit_holds(tools: Toolset, tidy: Sandbox, size: int) -> None:
    session = Session(tidy, 20.0, max_observation=size)
    tidy.write("/testbed/long", "é€😀x".encode() * 200_000)
    tidy.write("/testbed/long.py", "é€😀x".encode() * 70_000)
    editor = next(tool.name for tool in tools.tools if tool.kind == "edit")
    observations = [
        shell(tools, session, "cat long"),
        shell(tools, session, "cat long | tr x '\\n'"),
        call(tools, session, editor, command="view", path="/testbed/long.py"),
        call(tools, session, editor, command="view", path="/testbed"),
    ]
    if tools.find("search"):
        observations.append(call(tools, session, "search", search_term="x", path="long"))
    for observation in observations:
        assert len(observation.text) <= size + 400
        assert "\ufffd" not in observation.text
    assert observations[0].cut
    assert observations[2].cut


def test_end_tool_ends_the_work(tools: Toolset, tidy: Sandbox) -> None:
    session, name = Session(tidy, 20.0), next(tool.name for tool in tools.tools if tool.ends)
    if tools.scaffold == "sweagent":
        tidy.write("/testbed/new.py", b"made = 1\n")
        first = call(tools, session, name)
        assert not first.ends, "it has its agent look at the changes first"
        assert "+made = 1" in first.text
    observation = call(tools, session, name)
    assert observation.ends
    assert observation.exit_code is None


def test_r2egym_views_python_files_only(tidy: Sandbox) -> None:
    tools = toolset("r2egym")
    tidy.write("/testbed/words.txt", b"x\n")

    def view(path: str, **more: Any) -> str:
        return call(tools, tidy, "file_editor", command="view", path=f"/testbed/{path}", **more).text

    assert "only Python files" in view("words.txt")
    assert "a.py" in view("")
    assert "words.txt" not in view("")
    assert view("a.py").endswith("a.py:\n     1 a = 2")
    assert "at most 1" in view("a.py", view_range=[1, 5])
    created = call(tools, tidy, "file_editor", command="create", path="/testbed/made.py", file_text="x = 1\n")
    assert "     1\tx = 1" in created.text
    assert "x" in call(toolset("openhands"), tidy, "str_replace_editor", command="view", path="/testbed/words.txt").text


# -- particular scaffolds


@pytest.mark.parametrize("command", ["git log", "  ipython", "jupyter lab", "nohup x &"])
def test_r2egym_refuses_some_commands(machine: Sandbox, command: str) -> None:
    observation = shell(toolset("r2egym"), machine, command)
    assert "not allowed" in observation.text
    assert observation.exit_code == 1
    assert shell(toolset("r2egym"), machine, "echo git").exit_code == 0


def watch_for(words: str, observation: ToolObservation, tools: Toolset, session: Session) -> None:
    """Watch the running command until it has printed these words."""
    while words not in observation.text:
        assert "still running" in observation.text
        observation = shell(tools, session, "", timeout=2)


def test_openhands_commands_can_run_on(machine: Sandbox) -> None:
    tools, session = toolset("openhands"), Session(machine, 60.0)
    first = shell(tools, session, "echo name?; read -r name; echo hello $name; sleep 600", timeout=2)
    assert "still running" in first.text
    assert first.exit_code is None
    watch_for("name?", first, tools, session)
    refused = shell(tools, session, "ls")
    assert "NOT run" in refused.text
    watch_for("hello Ada", shell(tools, session, "Ada", is_input="true", timeout=2), tools, session)
    assert "not available" in shell(tools, session, "C-z", is_input="true").text
    waited = shell(tools, session, "", timeout=0.5)
    assert waited.exit_code is None
    assert "exit code 130" in shell(tools, session, "C-c", is_input="true").text
    assert shell(tools, session, "echo free").exit_code == 0
    assert "no command is running" in shell(tools, session, "", is_input="true").text
    assert "no command is running" in shell(tools, session, "C-c", is_input="true").text


def test_every_scaffold_has_one_end_tool() -> None:
    assert set(TOOLSETS) == set(SCAFFOLDS) == {agent.name for agent in AGENTS.values() if agent.is_scaffold}
    for tools in TOOLSETS.values():
        assert [tool.ends for tool in tools.tools].count(True) == 1
        assert [tool.kind for tool in tools.tools].count("shell") == 1
    foreign = {("sweagent", "execute_bash"): "bash", ("sweagent", "finish"): "submit"}
    foreign |= {(scaffold, "submit"): "finish" for scaffold in ("openhands", "r2egym")}
    for (scaffold, name), expected in foreign.items():
        tool = toolset(scaffold).find(name)
        assert tool is not None
        assert tool.name == expected
    assert toolset("r2egym").find("rm") is None


def test_impossible_arguments_are_refused(tools: Toolset, tidy: Sandbox) -> None:
    editor = next(tool.name for tool in tools.tools if tool.kind == "edit")
    observation = call(tools, tidy, editor, command="view", path="/testbed/a.py", view_range="[1, 1]")
    assert observation.text.endswith(f"     1{' ' if tools.scaffold == 'r2egym' else chr(9)}a = 2")
    for arguments, words in (
        ({}, "ERROR"),
        ({"command": "view"}, "ERROR"),
        ({"command": "view", "path": 5}, "ERROR"),
        ({"command": "fly", "path": "/testbed"}, "ERROR"),
        ({"command": "view", "path": "/testbed/none"}, "ERROR"),
        ({"command": "create", "path": "/testbed/o", "file_text": "\udead"}, "character"),
    ):
        refused = call(tools, tidy, editor, **arguments)
        assert (words in refused.text, refused.exit_code) == (True, 1)
    assert "is missing" in call(tools, tidy, SHELLS[tools.scaffold][0]).text
    for odd in ("echo \0", "echo \ud800"):
        refused = shell(tools, tidy, odd)
        assert ("character" in refused.text, refused.exit_code) == (True, 1)


def test_only_r2egym_shells_start_fresh(tools: Toolset, machine: Sandbox) -> None:
    session = Session(machine, 20.0)
    shell(tools, session, "cd b; export A=1")
    assert ("/testbed/b" in shell(tools, session, "pwd").text) == (tools.scaffold != "r2egym")
    if tools.scaffold == "openhands":
        assert call(tools, machine, "think", thought="x").text == "Your thought has been logged."
