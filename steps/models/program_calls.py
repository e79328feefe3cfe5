"""Model calls of agent programs: their requests, and answers in their protocol."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from urllib.parse import urlsplit

from swe_argo.steps.contracts.run_spec import WireProtocol
from swe_argo.steps.contracts.trajectory import Metrics, StopReason
from swe_argo.steps.errors import one_line
from swe_argo.steps.models.protocols import WIRES
from swe_argo.steps.models.protocols.chat import CHAT, check_chat_request
from swe_argo.steps.models.protocols.wire import SHAPE_ERRORS, STATUS, AgentError, Body, Wire, dump
from swe_argo.steps.models.reply import Message, NoReplyError, Reply, ToolDefinition, text_of
from swe_argo.steps.models.response_body import Answered, choice_of

DEEPEST = 100
"""Allowed levels of nesting; pydantic can write about 250."""


def is_deeper(value: object, levels: int = DEEPEST) -> bool:
    """Return whether lists and objects are nested more than ``levels`` deep."""
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(is_deeper(item, levels - 1) for item in inner)


@dataclass(frozen=True)
class ProgramRequest:
    """A request to a model, in its own protocol and as a chat completion request."""

    body: Body
    chat: Body


@dataclass(frozen=True)
class ModelCall:
    """A recorded model call. Messages, tools and reply are in chat completions form, whatever the protocol."""

    protocol: WireProtocol
    model: str
    """The called model's name at the endpoint."""
    system: str
    """System or developer messages at the beginning of the conversation."""
    messages: list[Message]
    """All later messages."""
    tools: list[ToolDefinition]
    reply: Reply | None
    metrics: Metrics
    """Includes all token ids of the prompt, also those of earlier calls of the conversation."""
    ended: StopReason | None = None
    """Reason for a missing reply: context_overflow, refusal, content_filter, request_refused or call_timeout."""
    detail: str = ""


def api_path(path: str) -> str:
    """Return the path without its query and without the version that some agents prepend."""
    return urlsplit(path).path.rstrip("/").removeprefix("/v1")


def wire_at(path: str) -> Wire | None:
    """Return the protocol whose model requests use this path, None if there is none."""
    return next((wire for wire in WIRES.values() if api_path(path) == wire.path), None)


def asks_model(method: str, path: str) -> bool:
    """Return whether a request calls a model, in any protocol."""
    return method == "POST" and wire_at(path) is not None


def read_request(headers: Mapping[str, str], body: bytes, wire: Wire) -> ProgramRequest:
    """Return the parsed request. Raises ValueError with a message for the agent if the body is invalid."""
    encoding = headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise ValueError(f"the body is {encoding}: send it as it is")
    try:
        request = json.loads(body, parse_float=_finite, parse_constant=_finite)
        if is_deeper(request):
            raise ValueError(f"more than {DEEPEST} levels")
        chat = wire.chat_request(request)
        check_chat_request(chat)
    except SHAPE_ERRORS as error:
        raise ValueError(f"the body is no request of this protocol: {type(error).__name__}: {error}") from None
    return ProgramRequest(request, chat)


def unanswered_call(client_wire: Wire, model: str, request: ProgramRequest) -> ModelCall:
    """Return the model call of a request, to be recorded until it is answered."""
    messages, tools = request.chat["messages"], request.chat.get("tools") or []
    leading = sum(1 for _ in takewhile(lambda message: message["role"] in ("system", "developer"), messages))
    system = "\n\n".join(text_of(message.get("content")) for message in messages[:leading])
    return ModelCall(client_wire.protocol, model, system, messages[leading:], tools, None, Metrics())


def _finite(text: str) -> float:
    """Return the number. Raises ValueError for NaN, Infinity and overflows, which JSON does not have."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is no number of JSON")
    return number


def plain_completion(answered: Answered) -> Body:
    """Return the normalised completion; call arguments keep the model's exact text."""
    body, metrics = answered.response.body, answered.metrics
    choice, extra, created = choice_of(body), metrics.extra, body.get("created")
    # The stop word that ended the answer: vLLM's and SGLang's name; either may be a token id.
    stop_words = (choice.get(name) for name in ("stop_reason", "matched_stop"))
    return {
        "created": created if isinstance(created, int) else 0,
        "choices": [
            {
                "message": _message(answered.outcome, choice.get("message")),
                "finish_reason": extra and extra.finish_reason,
                "stop_reason": next((word for word in stop_words if isinstance(word, str)), None),
            }
        ],
        "usage": {
            "prompt_tokens": metrics.prompt_tokens,
            "completion_tokens": metrics.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": metrics.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": extra and extra.reasoning_tokens},
        },
    }


def _message(reply: Reply | NoReplyError, received: object) -> Body:
    """Return the message with the calls' exact arguments; without a reply, only its content and refusal."""
    fields: Body = received if isinstance(received, dict) else {}
    content, refusal = (text if isinstance(text := fields.get(name), str) else None for name in ("content", "refusal"))
    if isinstance(reply, NoReplyError):
        return {"content": content or "", "refusal": refusal}
    message: Body = reply.message | {"refusal": refusal}
    if reply.calls:
        message["tool_calls"] = [
            entry | {"function": entry["function"] | {"name": call.name, "arguments": call.arguments}}
            for entry, call in zip(message["tool_calls"], reply.calls, strict=True)
        ]
    return message


JSON = {"content-type": "application/json"}
STREAM = {"content-type": "text/event-stream", "cache-control": "no-cache"}
FINAL = {"x-should-retry": "false"}
"""Header that tells the clients of OpenAI and Anthropic not to retry."""
_LINE = 1000
_TROUBLES = {
    StopReason.CONTEXT_OVERFLOW: AgentError.TOO_LONG,
    StopReason.CONTENT_FILTER: AgentError.FILTERED,
    StopReason.CALL_TIMEOUT: AgentError.ENDED,
}
"""Reason of a missing reply -> the error that the agent gets; other reasons give WRONG."""


@dataclass(frozen=True)
class Forwarded:
    """A response to the agent."""

    status: int
    headers: dict[str, str]
    body: bytes
    call: ModelCall | None = None
    """None if no model was called."""


def answer_json(body: Body) -> Forwarded:
    """Return a response that comes from no model."""
    return Forwarded(200, dict(JSON), dump(body))


def rename_repeated_calls(answered: Answered, messages: Iterable[Message]) -> Answered:
    """Return an answer whose call ids are unique in its conversation ``messages``.

    Some servers number the calls of each answer from the start, and agents match results to calls by ids alone. An
    answer in another protocol than chat completions is returned unchanged.
    """
    reply, response = answered.outcome, answered.response
    if not isinstance(reply, Reply) or response.native is not None:
        return answered
    used_ids = {str(call.get("id")) for message in messages for call in message.get("tool_calls") or []}
    names: list[str] = []
    for call in reply.calls:
        names.append(call.id if call.id not in used_ids else f"call_{uuid.uuid4().hex[:16]}")
        used_ids.add(names[-1])
    if names == [call.id for call in reply.calls]:
        return answered

    def with_ids(calls: list[Body]) -> list[Body]:
        return [call | {"id": name} for call, name in zip(calls, names, strict=False)]

    reply_message = choice_of(response.body)["message"]
    called = [call for call in reply_message.get("tool_calls") or [] if isinstance(call, dict)]
    reply_message = reply_message | {"tool_calls": with_ids(called)}
    choices = [choice_of(response.body) | {"message": reply_message}, *response.body["choices"][1:]]
    reply = replace(
        reply,
        calls=tuple(replace(call, id=name) for call, name in zip(reply.calls, names, strict=True)),
        message=reply.message | {"tool_calls": with_ids(reply.message["tool_calls"])},
    )
    return replace(answered, response=replace(response, body=response.body | {"choices": choices}), outcome=reply)


def forward_answer(answered: Answered, client_wire: Wire, wire: Wire, request: Body, call: ModelCall) -> Forwarded:
    """Return the model's answer in ``client_wire``, the agent's protocol; ``wire``: the endpoint's protocol."""
    response = answered.response
    if wire is not client_wire:
        native = client_wire.answer_of(plain_completion(answered), request)
    elif client_wire is CHAT:
        native = client_wire.answer_of(response.body, request)
    else:
        native = response.native or {}
    if request.get("stream"):
        return Forwarded(200, dict(STREAM), client_wire.events(native, request), call)
    return Forwarded(200, dict(JSON), dump(native), call)


def refuse_request(wire: Wire, trouble: AgentError, why: str, call: ModelCall | None = None) -> Forwarded:
    """Return an error in the protocol's own format, which no agent retries."""
    body = wire.error(trouble, one_line(why, _LINE))
    return Forwarded(STATUS.get(trouble, 400), JSON | FINAL, dump(body), call)


def forward_error(error: NoReplyError, client_wire: Wire, request: Body, call: ModelCall) -> Forwarded:
    """Return the error response for a call without a usable answer."""
    trouble, why = _TROUBLES.get(error.reason, AgentError.WRONG), one_line(error.detail or str(error.reason), _LINE)
    call = replace(call, ended=error.reason, detail=error.detail)
    if request.get("stream") and (stream := client_wire.error_stream(trouble, why)) is not None:
        return Forwarded(200, dict(STREAM), stream, call)
    return refuse_request(client_wire, trouble, why, call)
