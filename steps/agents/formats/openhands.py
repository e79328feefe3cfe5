"""OpenHands' ``output.jsonl`` of its evaluation (event dicts, flat or in pairs) and of its SDK (ActionEvent)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from swe_argo.steps.agents.formats.recording import ParsedTrajectory, Row, as_dict, as_list, as_name, as_reason, as_text
from swe_argo.steps.contracts.data import WORKDIR
from swe_argo.steps.contracts.recording import Action
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.datasets.openhands import OWN_KEY, read_end

NAME = "OpenHands"
_WITHOUT_EFFECT = frozenset(
    (
        "message",
        "system",
        "recall",
        "change_agent_state",
        "condensation",
        "condensation_request",
        "null",
        "reject",
    )
)
"""Agent events without an effect on the sandbox."""


def is_row(row: Row) -> bool:
    """Return whether the row looks like this format."""
    return "history" in row and "instance_id" in row


def read(row: Row) -> ParsedTrajectory:
    """Read a row of either kind, or one of this project. Paths of OpenHands' workspace become /testbed."""
    instance_id = str(row["instance_id"])
    entries = as_list(row.get("history"))
    events = [as_dict(event) for entry in entries for event in (entry if isinstance(entry, list) else [entry])]
    metadata, result = as_dict(row.get("metadata")), as_dict(row.get("test_result"))
    own = as_dict(result.get(OWN_KEY))
    if own:
        actions = list(_own_actions(events))
    else:
        inward, observations = _workspace(instance_id), _observations(events)
        actions = [
            _replace_workspace(action.model_copy(update={"observation": observations.get(id(event))}), inward)
            for event in events
            for action in _actions(event)
        ]
    llm = as_dict(metadata.get("llm_config") or metadata.get("llm"))
    is_agent_end, reason = read_end(row["error"]) if row.get("error") else (True, None)
    if not row.get("error") and actions and actions[-1].tool == "finish":
        reason = StopReason.FINISHED
    reason = as_reason(own.get("stop_reason")) or reason
    return ParsedTrajectory(
        NAME,
        instance_id,
        as_name(llm.get("model")),
        is_outcome=is_agent_end and reason is not StopReason.INTERRUPTED,
        actions=actions,
        scaffold=as_name(own.get("scaffold")),
        patch=as_text(result.get("git_patch")),
        stop_reason=reason,
    )


# -- OpenHands' rows -------------------------------------------------------------------------------------------------


def _actions(event: Row) -> Iterator[Action]:
    """Yield an event's actions to replay: none if it is not the agent's, or has no effect."""
    if event.get("kind") == "ActionEvent":  # the SDK's, since 2025
        arguments = {key: value for key, value in as_dict(event.get("action")).items() if key != "kind"}
        yield from _executable_actions(str(event.get("tool_name", "")), arguments)
    elif isinstance(name := event.get("action"), str) and event.get("source", "agent") == "agent":
        arguments = as_dict(event.get("args"))
        if name == "edit" and not arguments.get("command"):
            name = "edit (by line range)"  # no such tool, so the replay refuses it
        if name == "read":  # OpenHands' record of a view in its editor
            if event.get("tool_call_metadata") or arguments.get("impl_source") == "oh_aci":
                view = {"command": "view", "path": arguments.get("path"), "view_range": arguments.get("view_range")}
                yield Action(tool="edit", arguments={key: value for key, value in view.items() if value is not None})
        elif name not in _WITHOUT_EFFECT:
            yield from _executable_actions("terminal" if name == "run" else name, arguments)


def _executable_actions(tool: str, arguments: Row) -> Iterator[Action]:
    """Yield the action, except input to a running command and empty commands."""
    if tool in ("execute_bash", "terminal"):
        if arguments.get("is_input") not in (True, "true") and arguments.get("command"):
            yield Action(tool="bash_session", arguments={"command": arguments["command"]})
    else:
        yield Action(tool=tool, arguments=arguments)


def _observations(events: list[Row]) -> dict[int, str | None]:
    """Return each action's observation by ``id()`` of its event: the event that it caused, else the next event."""
    caused = {event["cause"]: event for event in events if _is_key(event.get("cause")) and "observation" in event}
    caused |= {event["action_id"]: event for event in events if _is_key(event.get("action_id"))}
    texts: dict[int, str | None] = {}
    for number, event in enumerate(events):
        effect = caused.get(event["id"]) if _is_key(event.get("id")) else None
        if effect is None and number + 1 < len(events) and not _is_key(events[number + 1].get("cause")):
            effect = events[number + 1]
        if effect is not None and "observation" in effect:
            body = effect["observation"] if isinstance(effect["observation"], dict) else effect  # an object in the SDK
            texts[id(event)] = as_text(body.get("content"))
    return texts


def _is_key(value: object) -> bool:
    return isinstance(value, int | str)


def _workspace(instance_id: str) -> re.Pattern[str]:
    """Return the pattern of ``/workspace/<owner>__<repo>__<version>`` (evaluation) and ``/workspace/<repo>`` (SDK)."""
    repo = re.sub(r"-[^-]*$", "", instance_id)
    short = repo.rpartition("__")[2]
    return re.compile(rf"/workspace/(?:{re.escape(repo)}(?:__[\w.]*\w)?|{re.escape(short)})(?![\w-])")


def move_repository(recorded: ParsedTrajectory, workdir: str) -> ParsedTrajectory:
    """Return a recording by OpenHands itself with the repository moved to ``workdir``, any other unchanged."""
    if workdir == WORKDIR or recorded.format != NAME or recorded.scaffold is not None:
        return recorded
    actions = [_replace_workspace(action, re.compile(rf"{WORKDIR}(?![\w-])"), workdir) for action in recorded.actions]
    return replace(recorded, actions=actions)


def _replace_workspace(action: Action, workspace: re.Pattern[str], workdir: str = WORKDIR) -> Action:
    """Return the action with the workspace's path replaced by ``workdir`` in all its texts."""
    arguments = {
        key: workspace.sub(workdir, value) if isinstance(value, str) else value
        for key, value in action.arguments.items()
    }
    return action.model_copy(update={"arguments": arguments})


# -- this project's rows ---------------------------------------------------------------------------------------------


def _own_actions(events: list[Row]) -> Iterator[Action]:
    """Yield the calls as the model made them, which our writer stores in the model's response."""
    observations = _observations(events)
    for event in events:
        metadata = as_dict(event.get("tool_call_metadata"))
        if "action" not in event or not metadata:
            continue
        choices = [as_dict(choice) for choice in as_list(as_dict(metadata.get("model_response")).get("choices"))]
        calls = [
            as_dict(call) for choice in choices for call in as_list(as_dict(choice.get("message")).get("tool_calls"))
        ]
        for function in (as_dict(call.get("function")) for call in calls):
            if name := as_name(function.get("name")):
                yield Action(
                    tool=name, arguments=as_dict(function.get("arguments")), observation=observations.get(id(event))
                )
