"""Normalisation of message roles for chat templates."""

from __future__ import annotations

from itertools import takewhile

from swe_argo.steps.models.protocols.wire import Body

_SYSTEM = ("system", "developer")


def merge_system_messages(messages: list[Body]) -> list[Body]:
    """Return the messages with one leading system message; later system messages become user messages.

    Chat templates of open models (Qwen's, Mistral's) accept only one such message, at the beginning.
    """
    leading = list(takewhile(lambda message: message["role"] in _SYSTEM, messages))
    rest = [
        message | {"role": "user"} if message["role"] in _SYSTEM else message for message in messages[len(leading) :]
    ]
    text = "\n\n".join(message["content"] for message in leading if message["content"])
    return [{"role": "system", "content": text}, *rest] if text else rest
