"""Who says what, so that every chat template takes it."""

from __future__ import annotations

from itertools import takewhile

from swe_argo.steps.models.protocols.wire import Body

_SYSTEM = ("system", "developer")


def lead_by_one_system(messages: list[Body]) -> list[Body]:
    """What leads a conversation as the system's or developer's words as one message; what comes later the user says.

    Chat templates of open models (Qwen's, Mistral's) take one such message, at the beginning.
    """
    leading = list(takewhile(lambda each: each["role"] in _SYSTEM, messages))
    rest = [each | {"role": "user"} if each["role"] in _SYSTEM else each for each in messages[len(leading) :]]
    text = "\n\n".join(each["content"] for each in leading if each["content"])
    return [{"role": "system", "content": text}, *rest] if text else rest
