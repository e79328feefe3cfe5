"""Built-in Anthropic tools that the agent runs, as functions: bash, text_editor and memory."""

from __future__ import annotations

import re

from swe_argo.steps.models.protocols.wire import Body

_KIND = re.compile(r"(bash|text_editor|memory)_(\d{8})")
"""A tool's type, with the date of its version."""
_WITHOUT_UNDO = "20250429"
"""First version whose editor has no undo_edit and a separate field for the text of insert."""
_TEXT: Body = {"type": "string"}
_PROPERTIES: Body = {
    "path": _TEXT | {"description": "Absolute path of a file, or of a folder to view."},
    "view_range": {
        "type": "array",
        "items": {"type": "integer"},
        "description": "view: first and last line, from 1; -1 is the end of the file.",
    },
    "file_text": _TEXT | {"description": "create: the text of the file."},
    "old_str": _TEXT | {"description": "str_replace: the text to replace; the file has it exactly once."},
    "new_str": _TEXT | {"description": "str_replace: the text to put in its place."},
    "insert_line": {"type": "integer", "description": "insert: the line after which to insert; 0 is the beginning."},
    "insert_text": _TEXT | {"description": "insert: the text to insert."},
}
_BASH: Body = {
    "command": _TEXT | {"description": "The command to run. The shell keeps its state."},
    "restart": {"type": "boolean", "description": "True, without a command, starts the shell anew."},
}


def client_tool(tool: Body) -> Body | None:
    """Return a tool without a schema as a function; None for a tool that Anthropic's servers run."""
    if (match := _KIND.fullmatch(str(tool.get("type")))) is None:
        return None
    kind, version = match.groups()
    if kind == "bash":
        return _function(tool, "Runs commands in a shell of this machine and returns their output.", _BASH)
    commands = ["view", "create", "str_replace", "insert"]
    if kind == "memory":
        # The first three letters are "old" and "new".
        paths = {name: _TEXT | {"description": f"rename: the {name[:3]} path."} for name in ("old_path", "new_path")}
        more = _command([*commands, "delete", "rename"]) | _PROPERTIES | paths
        return _function(tool, "Views and changes files of notes, which lie below /memories.", more, "command")
    properties = _PROPERTIES
    if version < _WITHOUT_UNDO:
        commands.append("undo_edit")
        properties = {name: schema for name, schema in properties.items() if name != "insert_text"}
        properties["new_str"] = _TEXT | {"description": "The text that str_replace puts there, or insert inserts."}
    return _function(tool, "Views, creates and edits files.", _command(commands) | properties, "command", "path")


def _command(commands: list[str]) -> Body:
    return {"command": _TEXT | {"enum": commands}}


def _function(tool: Body, description: str, properties: Body, *required: str) -> Body:
    """Return a tool as a function with these parameters, of which ``required`` names the mandatory ones."""
    parameters = {"type": "object", "properties": properties} | ({"required": list(required)} if required else {})
    return {"name": tool["name"], "description": description, "parameters": parameters}
