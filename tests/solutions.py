"""Scripted answers of a model that solves mini instances: the reference patch, by each scaffold's tools."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from swe_argo.steps.datasets import load
from tests.model_server import Answer, Call, Script, by_text, function_text, play

TESTS = "python3 -m pytest -q -p no:cacheprovider 2>&1 | tail -n 5"


@dataclass(frozen=True)
class Edit:
    """One hunk: ``old`` stands once in ``path`` and becomes ``new``."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class ScriptedTurn:
    """An answer of a model: a thought and one tool call."""

    thought: str
    tool: str
    arguments: dict[str, Any]


@cache
def rows() -> dict[str, dict[str, Any]]:
    """Return the mini instances by id."""
    return {row["instance_id"]: row for row in load.load("mini", "test").rows}


def edits(patch: str) -> list[Edit]:
    """Return the hunks of a unified diff that neither adds nor removes files."""
    changes = []
    for part in re.split(r"^diff --git .*\n", patch, flags=re.MULTILINE)[1:]:
        path = re.search(r"^\+\+\+ b/(.+)$", part, re.MULTILINE)
        assert path, part
        for hunk in re.split(r"^@@ .*\n", part, flags=re.MULTILINE)[1:]:
            lines = [line for line in hunk.splitlines(keepends=True) if line[:1] in " +-"]
            old = "".join(line[1:] for line in lines if line[0] in " -")
            new = "".join(line[1:] for line in lines if line[0] in " +")
            changes.append(Edit(path[1], old, new))
    return changes


def conversation(instance_id: str, scaffold: str) -> list[ScriptedTurn]:
    """Return the turns that solve ``instance_id`` with the tools of ``scaffold``: look, edit, test, finish."""
    patch = rows()[instance_id]["patch"]
    if scaffold == "mini-swe-agent":
        return _in_bash(patch)
    editor = "file_editor" if scaffold == "r2egym" else "str_replace_editor"
    shell = ("execute_bash", "cmd" if scaffold == "r2egym" else "command")
    turns = [ScriptedTurn("I look at what there is.", shell[0], {shell[1]: "ls && git status --short"})]
    for path in dict.fromkeys(edit.path for edit in edits(patch)):
        turns.append(ScriptedTurn(f"Let me read {path}.", editor, {"command": "view", "path": f"/testbed/{path}"}))
    for edit in edits(patch):
        arguments = {"path": f"/testbed/{edit.path}", "old_str": edit.old, "new_str": edit.new}
        arguments = {"command": "str_replace", **arguments}
        turns.append(ScriptedTurn("This is where it goes wrong.", editor, arguments))
    turns.append(ScriptedTurn("Now the tests.", shell[0], {shell[1]: TESTS}))
    end = {"r2egym": ("finish", {"command": "submit"}), "sweagent": ("submit", {})}
    tool, arguments = end.get(scaffold, ("finish", {"message": "The issue is fixed."}))
    return [*turns, *[ScriptedTurn("It is done.", tool, arguments)] * (2 if scaffold == "sweagent" else 1)]


def _in_bash(patch: str) -> list[ScriptedTurn]:
    apply = f"git apply <<'END_OF_PATCH'\n{patch}END_OF_PATCH"
    submit = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && git diff"
    return [
        ScriptedTurn("I look at what there is.", "bash", {"command": "ls && git status --short"}),
        ScriptedTurn("This mends it.", "bash", {"command": apply}),
        ScriptedTurn("Now the tests.", "bash", {"command": TESTS}),
        ScriptedTurn("It is done.", "bash", {"command": submit}),
    ]


def oneshot(instance_id: str) -> str:
    """Return the one answer for agent oneshot."""
    return f"I think this is what is wrong.\n\n<patch>\n{rows()[instance_id]['patch']}</patch>\n"


def answers(instance_id: str, scaffold: str, *, fn_calling: bool) -> list[Answer]:
    """Return the conversation as a model's answers, by function calling or as text."""
    if scaffold == "oneshot":
        return [Answer(oneshot(instance_id))]
    return [_answer(turn, scaffold, fn_calling) for turn in conversation(instance_id, scaffold)]


def _answer(turn: ScriptedTurn, scaffold: str, fn_calling: bool) -> Answer:
    if fn_calling:
        return Answer(turn.thought, calls=(Call(turn.tool, turn.arguments),))
    if scaffold == "mini-swe-agent":
        return Answer(f"THOUGHT: {turn.thought}\n\n```mswea_bash_command\n{turn.arguments['command']}\n```")
    return function_text(turn.tool, turn.thought, **{name: str(value) for name, value in turn.arguments.items()})


def solving(scaffold: str, *, fn_calling: bool = True) -> Script:
    """Return a model script that solves every mini instance, recognised by the first line of its issue."""
    scripts = {
        _title(row): play(*answers(instance_id, scaffold, fn_calling=fn_calling)) for instance_id, row in rows().items()
    }
    return by_text(scripts, otherwise=play(Answer("Ready.")))


def file(scaffold: str, *, fn_calling: bool = True) -> dict[str, Any]:
    """Return the same as the content of ``python -m tests.model_server --script FILE``."""
    conversations = [
        {"when": _title(row), "play": [_item(answer) for answer in answers(name, scaffold, fn_calling=fn_calling)]}
        for name, row in rows().items()
    ]
    return {"conversations": conversations, "otherwise": [{"text": "Ready."}]}


def _title(row: dict[str, Any]) -> str:
    return str(row["problem_statement"]).partition("\n")[0]


def _item(answer: Answer) -> dict[str, Any]:
    calls = [{"name": call.name, "arguments": call.arguments} for call in answer.calls]
    return {"text": answer.text, "calls": calls}
