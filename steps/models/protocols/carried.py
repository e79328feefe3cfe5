"""What a conversation must bring back to its endpoint, in a form that agents of other protocols hand back untouched.

Anthropic's thinking blocks have a signature, Responses' reasoning items an encrypted content: both are the endpoint's
own affair, and every agent sends them back byte for byte. So nothing is to be remembered here between two calls.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from steps.models.reply import CARRIED, REASONING

ARGUMENTS = "arguments"
_MARK = "swe-argo:"


def reasoning_of(message: dict[str, Any]) -> str:
    """What the model thought, of an assistant's message."""
    return next((message[name] for name in REASONING if isinstance(message.get(name), str)), "")


def pack(message: dict[str, Any], again: Callable[[dict[str, Any]], str]) -> str:
    """The fields of an assistant's message that the other protocol has no place for; empty where there are none.

    ``again``: a call -> its arguments as they will come back. Where the model wrote the same JSON in other letters,
    those are kept, for they are the tokens that it has said.
    """
    fields = {name: message[name] for name in CARRIED if message.get(name)}
    calls = {
        str(call.get("id")): {name: call[name] for name in CARRIED if call.get(name)} | _letters(call, again(call))
        for call in message.get("tool_calls") or []
    }
    named = next((name for name in REASONING if isinstance(message.get(name), str) and message[name]), None)
    packed = {"reasoning": named, "message": fields, "calls": {name: each for name, each in calls.items() if each}}
    if not any(packed.values()):
        return ""
    return _MARK + base64.b64encode(json.dumps(packed).encode()).decode()


def unpack(text: object, thought: str, message: dict[str, Any]) -> None:
    """Put what ``pack`` packed, and what was thought, back into the assistant's message, its calls included."""
    packed: dict[str, Any] = {}
    if isinstance(text, str) and text.startswith(_MARK):
        packed = json.loads(base64.b64decode(text.removeprefix(_MARK)))
    if thought:
        message[packed.get("reasoning") or REASONING[0]] = thought
    message.update({name: packed["message"][name] for name in CARRIED if name in packed.get("message", {})})
    for call in message.get("tool_calls") or []:
        kept = packed.get("calls", {}).get(call["id"], {})
        call.update({name: kept[name] for name in CARRIED if name in kept})
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
