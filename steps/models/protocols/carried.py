"""What a conversation must bring back to its endpoint, in a form that agents of other protocols hand back untouched.

Anthropic's thinking blocks have a signature, Responses' reasoning items an encrypted content: both are the endpoint's
own affair, and every agent sends them back byte for byte. So nothing is to be remembered here between two calls.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from steps.models.reply import CARRIED, REASONING

_MARK = "swe-argo:"


def reasoning_of(message: dict[str, Any]) -> str:
    """What the model thought, of an assistant's message."""
    return next((message[name] for name in REASONING if isinstance(message.get(name), str)), "")


def pack(message: dict[str, Any]) -> str:
    """The fields of an assistant's message that the other protocol has no place for; empty where there are none."""
    fields = {name: message[name] for name in CARRIED if message.get(name)}
    calls = {
        str(call.get("id")): {name: call[name] for name in CARRIED if call.get(name)}
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
        call.update(packed.get("calls", {}).get(call["id"], {}))
