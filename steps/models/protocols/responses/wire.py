"""Definition of the Responses protocol."""

from __future__ import annotations

from swe_argo.steps.contracts.wire_protocol import WireProtocol
from swe_argo.steps.models.protocols.chat import CODES, openai_error
from swe_argo.steps.models.protocols.responses.answer import answer_of, completion
from swe_argo.steps.models.protocols.responses.request import chat_request
from swe_argo.steps.models.protocols.responses.stream import ResponseAssembly, events, failed
from swe_argo.steps.models.protocols.wire import AgentError, Body, Wire


def _error(trouble: AgentError, message: str) -> Body:
    return {"error": openai_error(trouble, message)}


def _error_stream(trouble: AgentError, message: str) -> bytes | None:
    """Return a stream with the error; Codex recognises a context overflow only by this event."""
    return failed(CODES[trouble], message) if trouble is AgentError.TOO_LONG else None


RESPONSES = Wire(
    WireProtocol.RESPONSES,
    "/responses",
    "response",
    fields={"max_output_tokens": ("max_output_tokens",), "reasoning_effort": ("reasoning", "effort")},
    assembly=ResponseAssembly,
    chat_request=chat_request,
    completion=completion,
    answer_of=answer_of,
    events=events,
    error=_error,
    error_stream=_error_stream,
)
