"""Responses to an agent program in its own protocol: the model's answer, or an error."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace

from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.errors import one_line
from swe_argo.steps.models.call import Answered
from swe_argo.steps.models.plain_completion import plain_completion
from swe_argo.steps.models.program_requests import ModelCall
from swe_argo.steps.models.protocols.chat import CHAT
from swe_argo.steps.models.protocols.wire import STATUS, AgentError, Body, Wire, dump
from swe_argo.steps.models.reply import Message, NoReplyError, Reply
from swe_argo.steps.models.response_body import choice_of

JSON = {"content-type": "application/json"}
STREAM = {"content-type": "text/event-stream", "cache-control": "no-cache"}
FINAL = {"x-should-retry": "false"}
"""Header that tells the clients of OpenAI and Anthropic not to retry."""
_LINE = 1000
"""Longest error message, in characters."""
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
    reply_message = choice_of(response.body)["message"]
    called = [call for call in reply_message.get("tool_calls") or [] if isinstance(call, dict)]
    reply_message = reply_message | {"tool_calls": _with_ids(called, names)}
    choices = [choice_of(response.body) | {"message": reply_message}, *response.body["choices"][1:]]
    reply = replace(
        reply,
        calls=tuple(replace(call, id=name) for call, name in zip(reply.calls, names, strict=True)),
        message=reply.message | {"tool_calls": _with_ids(reply.message["tool_calls"], names)},
    )
    return replace(answered, response=replace(response, body=response.body | {"choices": choices}), outcome=reply)


def _with_ids(calls: list[Body], names: list[str]) -> list[Body]:
    return [call | {"id": name} for call, name in zip(calls, names, strict=False)]


def forward_answer(answered: Answered, client_wire: Wire, wire: Wire, request: Body, call: ModelCall) -> Forwarded:
    """Return the model's answer in ``client_wire``, the agent's protocol; ``wire``: the endpoint's protocol.

    Raises AttributeError, KeyError, TypeError or ValueError if the JSON has another shape.
    """
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
