"""Definition of Anthropic's protocol."""

from __future__ import annotations

from swe_argo.steps.contracts.wire_protocol import WireProtocol
from swe_argo.steps.models.protocols.anthropic.answer import MessageAssembly, answer_of, completion, events
from swe_argo.steps.models.protocols.anthropic.request import chat_request
from swe_argo.steps.models.protocols.wire import AgentError, Body, Wire

TOO_LONG = "prompt is too long"
"""Message by which Claude Code recognises a context overflow; there is no error code for it."""


def _error(trouble: AgentError, reason: str) -> Body:
    kind = "not_found_error" if trouble is AgentError.NO_PAGE else "invalid_request_error"
    message = f"{TOO_LONG}: {reason}" if trouble is AgentError.TOO_LONG else reason
    return {"type": "error", "error": {"type": kind, "message": message}}


ANTHROPIC = Wire(
    WireProtocol.ANTHROPIC,
    "/messages",
    "message of Anthropic's",
    fields={"max_output_tokens": ("max_tokens",), "reasoning_effort": ("output_config", "effort")},
    assembly=MessageAssembly,
    chat_request=chat_request,
    completion=completion,
    answer_of=answer_of,
    events=events,
    error=_error,
)
