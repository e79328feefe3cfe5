"""OpenAI's chat completions, the protocol that all others are translated to and from."""

from __future__ import annotations

from typing import Any

from swe_argo.steps.contracts.wire_protocol import WireProtocol
from swe_argo.steps.models.protocols.wire import AgentError, Body, Wire, event
from swe_argo.steps.models.stream import Assembly

CODES = {
    AgentError.TOO_LONG: "context_length_exceeded",
    AgentError.FILTERED: "content_filter",
    AgentError.NO_PAGE: "unknown_url",
}
"""OpenAI's error codes. Agents shorten the conversation on the code of TOO_LONG."""


def _answer(completion: Body, request: Body) -> Body:
    """Return the completion without recorded token ids: a prompt's ids are long, and no agent asked for them."""
    unasked = {"prompt_token_ids", "token_ids", *(() if request.get("logprobs") else ("logprobs",))}
    choices = [
        {"message": {"role": "assistant", "content": None}}  # some filters send no message
        | {name: choice[name] for name in choice if name not in unasked}
        for choice in completion["choices"]
    ]
    return {name: completion[name] for name in completion if name not in unasked} | {"choices": choices}


def _events(completion: Body, request: Body) -> bytes:
    """Return a stream of one chunk with all content, one with the finish reason, and one with usage if requested."""
    names = ("id", "created", "model", "system_fingerprint", "service_tier")
    frame = {name: completion[name] for name in names if name in completion} | {"object": "chat.completion.chunk"}
    deltas, ends = [], []
    for choice in completion["choices"]:
        place = {"index": choice.get("index", 0)}
        logprobs = {"logprobs": choice["logprobs"]} if choice.get("logprobs") else {}
        deltas.append(place | {"delta": _delta(choice["message"]), "finish_reason": None} | logprobs)
        ends.append(place | {"delta": {}, "finish_reason": choice.get("finish_reason") or "stop"})
    chunks = [frame | {"choices": deltas}, frame | {"choices": ends}]
    if (request.get("stream_options") or {}).get("include_usage") and completion.get("usage"):
        chunks.append(frame | {"choices": [], "usage": completion["usage"]})
    return b"".join(map(event, chunks)) + b"data: [DONE]\n\n"


def _delta(message: Body) -> Body:
    """Return a message as the only delta of a stream, with an index for each call."""
    called = [call for call in message.get("tool_calls") or [] if isinstance(call, dict)]
    calls = [call | {"index": place} for place, call in enumerate(called)]
    return {"role": "assistant"} | message | ({"tool_calls": calls} if calls else {})


def _error(trouble: AgentError, message: str) -> Body:
    return {"error": openai_error(trouble, message)}


def openai_error(trouble: AgentError, message: str) -> dict[str, Any]:
    """Return an error in the format of OpenAI's APIs."""
    return {"message": message, "type": "invalid_request_error", "param": None, "code": CODES.get(trouble)}


CHAT = Wire(
    WireProtocol.CHAT,
    "/chat/completions",
    "chat completion",
    fields={"max_output_tokens": ("max_tokens",)},
    assembly=Assembly,
    chat_request=lambda request: request,
    completion=lambda answer: answer,
    answer_of=_answer,
    events=_events,
    error=_error,
)
