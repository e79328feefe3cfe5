"""Built-in OpenAI tools that the agent runs, as functions: local_shell, shell and apply_patch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from swe_argo.steps.models.protocols.wire import Body


@dataclass(frozen=True)
class ClientTool:
    """A tool of the agent's, offered as a function that is named after the tool's type."""

    field: str
    """Field of a call item that holds the arguments."""
    id_kind: str
    """Prefix of a call item's id."""
    description: str
    properties: Body
    required: tuple[str, ...]
    read: Callable[[Body], Body | None]
    """Arguments -> the field; None if they do not fit this tool."""
    output: Callable[[Body], str]
    """Result item -> its text."""

    def definition(self, name: str) -> Body:
        """Return the tool as a chat completion request offers it."""
        parameters = {"type": "object", "properties": self.properties, "required": list(self.required)}
        return {
            "type": "function",
            "function": {"name": name, "description": self.description, "parameters": parameters},
        }


def client_tool(kind: object) -> ClientTool | None:
    """Return the tool of a tool or item type (shell, shell_call, shell_call_output); None for other types."""
    return CLIENT_TOOLS.get(str(kind).removesuffix("_output").removesuffix("_call"))


def is_hosted(part: Body) -> bool:
    """Return whether OpenAI's servers run a tool or a call of it, in a container of theirs."""
    return str((part.get("environment") or {}).get("type")).startswith("container")


def arguments_of(item: Body, tool: ClientTool) -> str:
    """Return a call item's arguments as JSON text."""
    field = item[tool.field].items()
    # Empty fields are no arguments; "exec" is the only type of an action, so it is none, either.
    arguments = {name: entry for name, entry in field if entry not in (None, {}) and (name, entry) != ("type", "exec")}
    return json.dumps(arguments, ensure_ascii=False)


def call_item(arguments: str, name: str, tool: ClientTool) -> Body | None:
    """Return the tool's fields of a call item; None for malformed arguments, which the agent refuses."""
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    field = tool.read(values) if isinstance(values, dict) else None
    return None if field is None else {"type": f"{name}_call", tool.field: field}


def _read_local_shell(arguments: Body) -> Body | None:
    """Return the action of a local_shell call; a command line as one text is run by bash."""
    command = arguments.get("command")
    words = ["bash", "-lc", command] if isinstance(command, str) else command
    return {"env": {}} | arguments | {"type": "exec", "command": words} if _are_words(words) else None


def _read_shell(arguments: Body) -> Body | None:
    """Return the action of a shell call; a single command may be given as text."""
    commands = arguments.get("commands")
    commands = [commands] if isinstance(commands, str) else commands
    limits = {name: arguments.get(name) for name in ("timeout_ms", "max_output_length")}
    return {"commands": commands} | limits if _are_words(commands) else None


def _read_patch(arguments: Body) -> Body | None:
    """Return the operation of an apply_patch call; only delete_file has no diff."""
    field_names = ("path",) if arguments.get("type") == "delete_file" else ("path", "diff")
    legal = arguments.get("type") in _CHANGES and all(isinstance(arguments.get(name), str) for name in field_names)
    return {name: arguments[name] for name in ("type", *field_names)} if legal else None


def _are_words(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _shell_output(item: Body) -> str:
    """Return the output of a shell call: a text, or stdout, stderr and exit code of each command."""
    output = item["output"]
    if not isinstance(output, list):
        return str(output)
    parts = []
    for entry in output:
        outcome = entry.get("outcome") or {}
        end = "timed out" if outcome.get("type") == "timeout" else f"exit code {outcome.get('exit_code')}"
        parts += [entry.get("stdout"), entry.get("stderr"), end]
    return "\n".join(part for part in parts if part)


def _patch_output(item: Body) -> str:
    """Return the result's text; its status, too, unless that is just ``completed``."""
    status, text = item.get("status"), item.get("output")
    return "\n".join(str(part) for part in (None if text and status == "completed" else status, text) if part)


_CHANGES = ("create_file", "update_file", "delete_file")
_TIMEOUT = {"type": "integer", "description": "Milliseconds that it may take."}
CLIENT_TOOLS: Mapping[str, ClientTool] = MappingProxyType(
    {
        "local_shell": ClientTool(
            "action",
            "lsh",
            "Runs a command in the shell of this machine and returns its output.",
            {
                "command": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": 'Its words, as ["bash", "-lc", "ls"].',
                },
                "working_directory": {"type": "string", "description": "Where it runs."},
                "timeout_ms": _TIMEOUT,
            },
            ("command",),
            _read_local_shell,
            _shell_output,
        ),
        "shell": ClientTool(
            "action",
            "sh",
            "Runs commands in the shell of this machine and returns the output and exit code of each.",
            {
                "commands": {"type": "array", "items": {"type": "string"}, "description": "Command lines."},
                "timeout_ms": _TIMEOUT,
                "max_output_length": {"type": "integer", "description": "Characters of each output to return."},
            },
            ("commands",),
            _read_shell,
            _shell_output,
        ),
        "apply_patch": ClientTool(
            "operation",
            "apc",
            "Creates, updates or deletes one file.",
            {
                "type": {"type": "string", "enum": list(_CHANGES)},
                "path": {"type": "string", "description": "The file."},
                "diff": {
                    "type": "string",
                    "description": "What changes, except for delete_file: sections that begin with @@, each line after "
                    "a space (unchanged), - (removed) or + (added). For create_file, every line begins with +.",
                },
            },
            ("type", "path"),
            _read_patch,
            _patch_output,
        ),
    }
)
