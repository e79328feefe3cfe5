"""Validation of the fields of chat completion requests that are read here; programs may send anything."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ValidationError

from swe_argo.steps.models.protocols.wire import Body
from swe_argo.steps.models.reply import Message


class _Part(BaseModel):
    text: str | None = None


class _CalledFunction(BaseModel):
    name: str
    arguments: str | None = None


class _ToolCall(BaseModel):
    function: _CalledFunction | None = None


class _Message(BaseModel):
    role: str
    content: str | list[str | _Part] | None = None
    tool_calls: list[_ToolCall] | None = None


class _OfferedFunction(BaseModel):
    name: str


class _Tool(BaseModel):
    function: _OfferedFunction | None = None


class _ChatRequest(BaseModel):
    """The validated fields; all others are left to the endpoint."""

    messages: list[_Message]
    tools: list[_Tool] | None = None
    stream_options: dict[str, Any] | None = None


def check_chat_request(request: Body) -> None:
    """Check a request's form. Raises ValueError that names the invalid field."""
    try:
        _ChatRequest.model_validate(request, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def find_form_fault(messages: list[Message]) -> str:
    """Return the first fault in the tool calls of a conversation, "" if there is none.

    Faults: arguments that are not a JSON object, a call without a result, a result without a call.
    """
    unanswered: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if (name := str(message.get("tool_call_id"))) not in unanswered:
                return "a tool message answers no call"
            unanswered.remove(name)
            continue
        if unanswered:
            break
        for call in message.get("tool_calls") or []:
            try:
                arguments = json.loads((call.get("function") or {}).get("arguments") or "")
            except (ValueError, RecursionError):
                arguments = None
            if not isinstance(arguments, dict):
                return "the arguments of a call are not a JSON object"
            unanswered.add(str(call.get("id")))
    return "a call has no answer" if unanswered else ""
