"""What a conversation must bring back to its endpoint, in a form that agents of other protocols hand back untouched.

Anthropic's thinking blocks have a signature, Responses' reasoning items an encrypted content: both are the endpoint's
own affair, and every agent sends them back byte for byte. So nothing is to be remembered here between two calls.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from swe_argo.steps.models.reply import REASONING, fields_to_return
from swe_argo.steps.models.response_body import read_content

ARGUMENTS = "arguments"
_MARK = "swe-argo:"


def reasoning_of(message: dict[str, Any]) -> str:
    """Return what the model thought: a field of an assistant's message, or parts of its content."""
    named = _reasoning_field(message)
    return message[named] if named else read_content(message.get("content"))[1]


def _reasoning_field(message: dict[str, Any]) -> str | None:
    return next((name for name in REASONING if isinstance(message.get(name), str) and message[name]), None)


def pack(message: dict[str, Any], again: Callable[[dict[str, Any]], str]) -> str:
    """The fields of an assistant's message that the other protocol has no place for; empty where there are none.

    ``again``: a call -> its arguments as they will come back. Where the model wrote the same JSON in other letters,
    those are kept, for they are the tokens that it has said.
    """
    named, content = _reasoning_field(message), message.get("content")
    fields = {name: value for name, value in fields_to_return(message, "message").items() if value is not None}
    fields.pop(named or "", None)
    calls: dict[str, dict[str, Any]] = {}
    for call in message.get("tool_calls") or []:
        kept = {"call": fields_to_return(call, "call"), "function": fields_to_return(call["function"], "function")}
        calls[str(call.get("id"))] = {name: part for name, part in kept.items() if part} | _letters(call, again(call))
    packed = {
        "reasoning": named,
        "message": fields,
        "calls": {name: each for name, each in calls.items() if each},
        "content": content if isinstance(content, list) else None,
    }
    if not any(packed.values()):
        return ""
    return _MARK + base64.b64encode(json.dumps(packed).encode()).decode()


def unpack(text: object, thought: str, message: dict[str, Any]) -> None:
    """Put what ``pack`` packed, and what was thought, back into the assistant's message, its calls included."""
    packed: dict[str, Any] = {}
    if isinstance(text, str) and text.startswith(_MARK):
        packed = json.loads(base64.b64decode(text.removeprefix(_MARK)))
    said, thoughts = read_content(parts := packed.get("content"))
    if parts and said == (message["content"] or ""):
        message["content"] = parts
    if thought and (packed.get("reasoning") or thought != thoughts):
        message[packed.get("reasoning") or REASONING[0]] = thought
    message |= fields_to_return(packed.get("message", {}), "message")
    for call in message.get("tool_calls") or []:
        kept = packed.get("calls", {}).get(call["id"], {})
        call.update(fields_to_return(kept.get("call", {}), "call"))
        call["function"] |= fields_to_return(kept.get("function", {}), "function")
        if _same(kept.get(ARGUMENTS), call["function"][ARGUMENTS]):
            call["function"][ARGUMENTS] = kept[ARGUMENTS]


def _letters(call: dict[str, Any], again: str) -> dict[str, str]:
    said = call["function"].get(ARGUMENTS)
    return {ARGUMENTS: said} if said != again and _same(said, again) else {}


def _same(one: str | None, other: str) -> bool:
    """Whether two texts are the same JSON; what an agent has changed stays as it came."""
    try:
        return one is not None and bool(json.loads(one) == json.loads(other))
    except (ValueError, RecursionError):
        return False
