"""The scaffolds' tools: their names and parameters, and what an agent is shown of what they do."""

from __future__ import annotations

from typing import Any

import pytest

from steps.agents.tools.session import Session
from steps.agents.tools.sets import TOOLSETS, Toolset, toolset
from steps.agents.tools.tool import Seen
from steps.contracts.run import SCAFFOLDS
from steps.sandbox.protocol import Sandbox

EDITING = ["command", "path", "file_text", "old_str", "new_str", "insert_line", "view_range"]
SHELLS = {"r2egym": ("execute_bash", "cmd"), "openhands": ("execute_bash", "command"), "sweagent": ("bash", "command")}
NAMES = sorted(TOOLSETS)


@pytest.fixture(params=NAMES)
def tools(request: pytest.FixtureRequest) -> Toolset:
    return toolset(request.param)


def call(tools: Toolset, machine: Sandbox | Session, name: str, **arguments: Any) -> Seen:
    session = machine if isinstance(machine, Session) else Session(machine, 20.0)
    tool = tools.find(name)
    assert tool is not None
    return tools.perform(tool, arguments, session)


def shell(tools: Toolset, machine: Sandbox | Session, command: str, **more: Any) -> Seen:
    name, parameter = SHELLS[tools.scaffold]
    return call(tools, machine, name, **{parameter: command}, **more)


# -- what there is


def test_the_tools_have_the_names_and_parameters_that_users_of_the_projects_know() -> None:
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
    assert listed("sweagent") == {"execute_bash": ["command"], "str_replace_editor": EDITING, "submit": []}


def test_every_scaffold_that_can_be_wished_for_has_tools_one_of_which_ends_the_work() -> None:
    assert set(TOOLSETS) == set(SCAFFOLDS)
    for tools in TOOLSETS.values():
        assert [tool.ends for tool in tools.tools].count(True) == 1
        assert [tool.kind for tool in tools.tools].count("shell") == 1


def test_names_of_other_projects_are_understood() -> None:
    for scaffold, name, meant in (
        ("sweagent", "bash", "execute_bash"),
        ("openhands", "submit", "finish"),
        ("r2egym", "submit", "finish"),
        ("sweagent", "finish", "submit"),
    ):
        tool = toolset(scaffold).find(name)
        assert tool is not None
        assert tool.name == meant
    assert toolset("r2egym").find("rm") is None


def test_definitions_are_what_function_calling_takes(tools: Toolset) -> None:
    for tool in tools.tools:
        function = tool.definition["function"]
        assert tool.definition["type"] == "function"
        assert set(function["parameters"]["required"]) <= set(function["parameters"]["properties"])
        assert all(each["description"] for each in function["parameters"]["properties"].values())
        assert len(function["description"]) <= 1024 * 4
    editor = next(tool for tool in tools.tools if tool.kind == "edit")
    assert editor.schema["properties"]["view_range"]["items"] == {"type": "integer"}


# -- what is shown


def test_the_exit_code_is_always_shown(tools: Toolset, machine: Sandbox) -> None:
    shown = {
        "r2egym": "Exit code: 3\nExecution output of [execute_bash]:\nhi\n",
        "openhands": "hi\n[The command completed with exit code 3.]",
        "sweagent": "OBSERVATION:\nhi\n[exit code: 3]",
    }
    seen = shell(tools, machine, "echo hi; exit 3")
    assert seen.text == shown[tools.scaffold]
    assert (seen.exit_code, seen.timed_out, seen.cut, seen.ends) == (3, False, False, False)
    assert seen.seconds > 0
    assert "0" in shell(tools, machine, "true").text


def test_a_command_that_took_too_long_is_said_to_have(tools: Toolset, machine: Sandbox) -> None:
    seen = shell(tools, Session(machine, 2.0), "echo begun; sleep 60")
    assert "begun" in seen.text
    code = {"r2egym": "Exit code: -1\n", "openhands": "\n[Exit code: -1.]", "sweagent": "\n[exit code: none]"}
    assert code[tools.scaffold] in seen.text
    assert "took too long" in seen.text
    assert seen.timed_out
    assert seen.exit_code is None


def test_output_is_cut_as_each_project_does_it(tools: Toolset, machine: Sandbox) -> None:
    seen = shell(tools, machine, "seq 1 1000000")
    assert seen.cut
    lines = seen.text.splitlines()
    if tools.scaffold == "r2egym":
        assert "40" in lines
        assert "41" not in lines
        assert lines[-40:] == [str(n) for n in range(999_961, 1_000_001)]
    elif tools.scaffold == "openhands":
        assert 30_000 <= len(seen.text) <= 30_200
        assert lines[-2] == "1000000"
    else:
        assert 100_000 <= len(seen.text) <= 100_400
        assert "1000000" not in lines


def test_what_just_fits_is_whole(machine: Sandbox) -> None:
    assert not shell(toolset("r2egym"), machine, "seq 1 80").cut
    assert shell(toolset("r2egym"), machine, "seq 1 81").cut
    assert not shell(toolset("openhands"), machine, "head -c 30000 /dev/zero | tr '\\0' x").cut
    assert shell(toolset("openhands"), machine, "head -c 30001 /dev/zero | tr '\\0' x").cut


@pytest.mark.parametrize("size", [100, 1000, 5000])
def test_a_size_that_is_set_holds_for_every_tool_and_no_character_is_halved(
    tools: Toolset, tidy: Sandbox, size: int
) -> None:
    session = Session(tidy, 20.0, max_observation=size)
    tidy.write("/testbed/long", "é€😀x".encode() * 200_000)
    editor = next(tool.name for tool in tools.tools if tool.kind == "edit")
    seen = [
        shell(tools, session, "cat long"),
        shell(tools, session, "cat long | tr x '\\n'"),
        call(tools, session, editor, command="view", path="/testbed/long"),
        call(tools, session, editor, command="view", path="/testbed"),
    ]
    if tools.find("search"):
        seen.append(call(tools, session, "search", search_term="x", path="long"))
    for each in seen:
        assert len(each.text) <= size + 400
        assert "\ufffd" not in each.text
    assert seen[0].cut
    assert seen[2].cut


def test_ending_the_work_ends_it(tools: Toolset, machine: Sandbox) -> None:
    seen = call(tools, machine, next(tool.name for tool in tools.tools if tool.ends))
    assert seen.ends
    assert seen.exit_code is None


def test_what_no_machine_takes_is_refused_in_words(tools: Toolset, machine: Sandbox) -> None:
    for odd in ("echo \0", "echo \ud800"):
        seen = shell(tools, machine, odd)
        assert "character" in seen.text
        assert seen.exit_code == 1
    editor = next(tool.name for tool in tools.tools if tool.kind == "edit")
    assert "character" in call(tools, machine, editor, command="create", path="/testbed/o", file_text="\udead").text


def test_arguments_that_nobody_checked_are_typed_or_refused(tools: Toolset, tidy: Sandbox) -> None:
    editor = next(tool.name for tool in tools.tools if tool.kind == "edit")
    seen = call(tools, tidy, editor, command="view", path="/testbed/a.py", view_range="[1, 1]")
    assert seen.text.endswith("     1\ta = 2")
    for arguments in ({}, {"command": "view"}, {"command": "view", "path": 5}, {"command": "fly", "path": "/testbed"}):
        refused = call(tools, tidy, editor, **arguments)
        assert "ERROR" in refused.text
        assert refused.exit_code == 1
    assert "is missing" in call(tools, tidy, "execute_bash").text


def test_an_edit_that_is_refused_is_an_error_with_a_code(tools: Toolset, machine: Sandbox) -> None:
    editor = next(tool.name for tool in tools.tools if tool.kind == "edit")
    seen = call(tools, machine, editor, command="view", path="/testbed/none")
    assert "ERROR" in seen.text
    assert seen.exit_code == 1


# -- what is particular


@pytest.mark.parametrize("command", ["git log", "  ipython", "jupyter lab", "nohup x &"])
def test_r2egym_refuses_some_first_words(machine: Sandbox, command: str) -> None:
    seen = shell(toolset("r2egym"), machine, command)
    assert "not allowed" in seen.text
    assert seen.exit_code == 1
    assert shell(toolset("r2egym"), machine, "echo git").exit_code == 0


def test_only_r2egyms_commands_begin_anew(tools: Toolset, machine: Sandbox) -> None:
    session = Session(machine, 20.0)
    shell(tools, session, "cd b; export A=1")
    assert ("/testbed/b" in shell(tools, session, "pwd").text) == (tools.scaffold != "r2egym")


def test_openhands_commands_can_be_left_running_answered_and_interrupted(machine: Sandbox) -> None:
    tools, session = toolset("openhands"), Session(machine, 60.0)
    first = shell(tools, session, "echo name?; read -r name; echo hello $name; sleep 50", timeout=2)
    assert "name?" in first.text
    assert "still running" in first.text
    assert first.text.endswith("\n[Exit code: -1.]")
    assert first.exit_code is None
    refused = shell(tools, session, "ls")
    assert "NOT run" in refused.text
    answered = shell(tools, session, "Ada", is_input="true", timeout=2)
    assert "hello Ada" in answered.text
    assert "not available" in shell(tools, session, "C-z", is_input="true").text
    waited = shell(tools, session, "", timeout=0.5)
    assert waited.exit_code is None
    assert "exit code 130" in shell(tools, session, "C-c", is_input="true").text
    assert shell(tools, session, "echo free").exit_code == 0
    assert "no command is running" in shell(tools, session, "", is_input="true").text
    assert "no command is running" in shell(tools, session, "C-c", is_input="true").text


def test_thinking_does_nothing(machine: Sandbox) -> None:
    assert call(toolset("openhands"), machine, "think", thought="x").text == "Your thought has been logged."
