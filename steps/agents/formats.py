"""The trajectory formats of other projects, row by row: whose actions they are, by which model, and what was done.

Read from ATIF (swe-argo's own, and Harbor's), mini-swe-agent 1 and 2 (``.traj.json``), R2E-Gym (``Trajectory`` of its
``traj/*.jsonl``) and OpenHands (``output.jsonl`` of its evaluation and of its SDK's). Keys may be missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from steps.contracts.trajectory import Action

Row = dict[str, Any]


@dataclass(frozen=True)
class Recorded:
    """One row, read: ``good`` is False where the recording ended in an error of its own infrastructure."""

    format: str
    instance_id: str
    model: str | None
    good: bool = True
    actions: list[Action] = field(default_factory=list)


def read_row(row: Row) -> Recorded | None:
    """The row in whichever format it is, or None where it is no trajectory. Raises ValueError saying what is wrong."""
    if str(row.get("schema_version", "")).startswith("ATIF-"):
        return _own(row)
    if "trajectory_steps" in row:
        return _r2e_gym(row)
    if "history" in row and "instance_id" in row:
        return _openhands(row)
    if "messages" in row and ("info" in row or "trajectory_format" in row):
        return _mini(row)
    return None


def _own(row: Row) -> Recorded:
    """ATIF, whoever wrote it."""
    actions = []
    for step in map(_dict, _list(row.get("steps"))):
        for call in map(_dict, _list(step.get("tool_calls"))):
            actions.append(Action(tool=str(call.get("function_name", "")), arguments=_dict(call.get("arguments"))))
    extra, agent = _dict(row.get("extra")), _dict(row.get("agent"))
    good = extra.get("stop_reason") != "interrupted"
    return Recorded("ATIF", str(extra.get("instance_id", "")), _name(agent.get("model_name")), good, actions)


# -- mini-swe-agent --------------------------------------------------------------------------------------------------

_FENCED = re.compile(r"```(?:bash|mswea_bash_command)\s*\n(.*?)\n```", re.DOTALL)


def _mini(row: Row) -> Recorded:
    info = _dict(row.get("info"))
    actions = []
    for message in map(_dict, _list(row.get("messages"))):
        if message.get("role") != "assistant":
            continue
        extra = _dict(message.get("extra"))
        commands = [_dict(action).get("command") for action in _list(extra.get("actions"))]
        if "actions" not in extra:
            # Version 1: the one fenced block of an answer; with more or fewer it was refused.
            found = _FENCED.findall(str(message.get("content") or ""))
            commands = found if len(found) == 1 else []
        actions += [Action(tool="bash", arguments={"command": text}) for text in commands if isinstance(text, str)]
    model = _dict(_dict(info.get("config")).get("model")).get("model_name")
    good = not info.get("exception_str") and not info.get("traceback")
    return Recorded("mini-swe-agent", str(row.get("instance_id", "")), _name(model), good, actions)


# -- R2E-Gym ---------------------------------------------------------------------------------------------------------

_FUNCTION = re.compile(r"<function\s*=\s*([^>]+)>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter\s*=\s*([^>]+)>(.*?)</parameter>", re.DOTALL)
_IMAGE = re.compile(r"sweb\.eval\.[^.:/]+\.([^:/]+)")
_REFUSED = ("git", "ipython", "jupyter", "nohup")
"""First words that its execute_bash does not run."""


def _r2e_gym(row: Row) -> Recorded:
    actions = []
    for step in map(_dict, _list(row.get("trajectory_steps"))):
        action = text_action(str(step.get("action") or ""))
        if action is None:
            continue
        words = str(action.arguments.get("cmd", "")).split(maxsplit=1)
        if words and words[0] in _REFUSED and "not allowed" in str(step.get("observation", "")):
            action = Action(tool="think", arguments={"refused": action.arguments["cmd"]})
        actions.append(action)
    good = row.get("exit_reason") not in ("llm_query_error", "env_exception", "agent_exception")
    model = _dict(row.get("agent_args")).get("llm_name")
    return Recorded("R2E-Gym", _r2e_instance(row), _name(model), good, actions)


def text_action(text: str) -> Action | None:
    """The first ``<function=NAME><parameter=KEY>VALUE</parameter></function>`` of a text; values are stripped."""
    found = _FUNCTION.search(text)
    if not found:
        return None
    arguments = {name.strip(): value.strip() for name, value in _PARAMETER.findall(found[2])}
    return Action(tool=found[1].strip(), arguments=arguments)


def _r2e_instance(row: Row) -> str:
    named = _dict(row.get("ds")).get("instance_id")
    if isinstance(named, str):
        return named
    image = _IMAGE.search(str(row.get("docker_image", "")))
    return image[1].replace("_1776_", "__") if image else str(row.get("docker_image", ""))


# -- OpenHands -------------------------------------------------------------------------------------------------------

_SILENT = frozenset(
    (
        "message",
        "system",
        "recall",
        "change_agent_state",
        "condensation",
        "condensation_request",
        "null",
        "read",
        "reject",
    )
)
"""Events of an agent that do not touch the machine."""


def _openhands(row: Row) -> Recorded:
    instance_id = str(row["instance_id"])
    events = [event for entry in _list(row.get("history")) for event in (entry if isinstance(entry, list) else [entry])]
    inward = _workspace(instance_id)
    actions = [_inward(action, inward) for event in events for action in _openhands_actions(_dict(event))]
    metadata = _dict(row.get("metadata"))
    llm = _dict(metadata.get("llm_config") or metadata.get("llm"))
    return Recorded("OpenHands", instance_id, _name(llm.get("model")), not row.get("error"), actions)


def _openhands_actions(event: Row) -> Iterator[Action]:
    if event.get("kind") == "ActionEvent":  # its SDK, since 2025
        arguments = {key: value for key, value in _dict(event.get("action")).items() if key != "kind"}
        yield from _performable(str(event.get("tool_name", "")), arguments)
    elif isinstance(name := event.get("action"), str) and event.get("source", "agent") == "agent":
        arguments = _dict(event.get("args"))
        if name == "edit" and not arguments.get("command"):
            name = "edit (by line range)"
        if name not in _SILENT:
            yield from _performable("terminal" if name == "run" else name, arguments)


def _performable(tool: str, arguments: Row) -> Iterator[Action]:
    if tool in ("execute_bash", "terminal"):
        if arguments.get("is_input") not in (True, "true") and arguments.get("command"):
            yield Action(tool="bash_session", arguments={"command": arguments["command"]})
    else:
        yield Action(tool=tool, arguments=arguments)


def _workspace(instance_id: str) -> re.Pattern[str]:
    """``/workspace/<owner>__<repo>__<version>`` of its evaluation, ``/workspace/<repo>`` of its SDK's."""
    repo = re.sub(r"-[^-]*$", "", instance_id)
    short = repo.rpartition("__")[2]
    return re.compile(rf"/workspace/(?:{re.escape(repo)}(?:__[\w.]*\w)?|{re.escape(short)})(?![\w-])")


def _inward(action: Action, workspace: re.Pattern[str]) -> Action:
    arguments = {
        key: workspace.sub("/testbed", value) if isinstance(value, str) else value
        for key, value in action.arguments.items()
    }
    return Action(tool=action.tool, arguments=arguments)


# -- reading tolerantly ----------------------------------------------------------------------------------------------


def _dict(value: object) -> Row:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


def _list(value: object) -> Iterable[Any]:
    return value if isinstance(value, list) else []


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
