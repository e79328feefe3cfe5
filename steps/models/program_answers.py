"""What an agent program is answered: what a model said, or why there is nothing, each in the agent's own protocol."""

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
from swe_argo.steps.models.protocols.wire import STATUS, Body, Trouble, Wire, dump
from swe_argo.steps.models.reply import Message, NoReplyError, Reply
from swe_argo.steps.models.response_body import choice_of

JSON = {"content-type": "application/json"}
STREAM = {"content-type": "text/event-stream", "cache-control": "no-cache"}
FINAL = {"x-should-retry": "false"}
"""By which the clients of OpenAI and Anthropic are told not to ask again."""
_LINE = 1000
"""Characters of what is told of an error."""
_TROUBLES = {
    StopReason.CONTEXT_OVERFLOW: Trouble.TOO_LONG,
    StopReason.CONTENT_FILTER: Trouble.FILTERED,
    StopReason.CALL_TIMEOUT: Trouble.ENDED,
}


@dataclass(frozen=True)
class Forwarded:
    """What the agent is answered."""

    status: int
    headers: dict[str, str]
    body: bytes
    call: ModelCall | None = None
    """None where no model was asked."""


def answer_json(body: Body) -> Forwarded:
    """A whole answer of no model."""
    return Forwarded(200, dict(JSON), dump(body))


def rename_repeated_calls(answered: Answered, messages: Iterable[Message]) -> Answered:
    """Return the answer to a conversation of chat completions, with call ids that the conversation has only once.

    Some servers number the calls of each answer anew, and agents match results to calls by ids alone.
    """
    reply, response = answered.outcome, answered.response
    if not isinstance(reply, Reply) or response.native is not None:
        return answered
    taken = {str(call.get("id")) for message in messages for call in message.get("tool_calls") or []}
    names: list[str] = []
    for call in reply.calls:
        names.append(call.id if call.id not in taken else f"call_{uuid.uuid4().hex[:16]}")
        taken.add(names[-1])
    if names == [call.id for call in reply.calls]:
        return answered
    said = choice_of(response.body)["message"]
    called = [call for call in said.get("tool_calls") or [] if isinstance(call, dict)]
    said = said | {"tool_calls": _with_ids(called, names)}
    choices = [choice_of(response.body) | {"message": said}, *response.body["choices"][1:]]
    reply = replace(
        reply,
        calls=tuple(replace(call, id=name) for call, name in zip(reply.calls, names, strict=True)),
        message=reply.message | {"tool_calls": _with_ids(reply.message["tool_calls"], names)},
    )
    return replace(answered, response=replace(response, body=response.body | {"choices": choices}), outcome=reply)


def _with_ids(calls: list[Body], names: list[str]) -> list[Body]:
    return [call | {"id": name} for call, name in zip(calls, names, strict=False)]


def forward_answer(answered: Answered, asked: Wire, wire: Wire, request: Body, call: ModelCall) -> Forwarded:
    """What the model said in ``wire``, in the words of ``asked``: as the endpoint wrote it where that is the same.

    Raises AttributeError, KeyError, TypeError or ValueError where that is JSON of another shape.
    """
    response = answered.response
    if wire is not asked:
        native = asked.answer_of(plain_completion(answered), request)
    elif asked is CHAT:
        native = asked.answer_of(response.body, request)
    else:
        native = response.native or {}
    if request.get("stream"):
        return Forwarded(200, dict(STREAM), asked.events(native, request), call)
    return Forwarded(200, dict(JSON), dump(native), call)


def refuse_request(wire: Wire, trouble: Trouble, why: str, call: ModelCall | None = None) -> Forwarded:
    """An error in the protocol's own words, after which no agent asks the same again."""
    body = wire.error(trouble, one_line(why, _LINE))
    return Forwarded(STATUS.get(trouble, 400), JSON | FINAL, dump(body), call)


def forward_error(error: NoReplyError, asked: Wire, request: Body, call: ModelCall) -> Forwarded:
    """Why there is no answer to go on with."""
    trouble, why = _TROUBLES.get(error.reason, Trouble.WRONG), one_line(error.detail or str(error.reason), _LINE)
    call = replace(call, ended=error.reason, detail=error.detail)
    if request.get("stream") and (stream := asked.error_stream(trouble, why)) is not None:
        return Forwarded(200, dict(STREAM), stream, call)
    return refuse_request(asked, trouble, why, call)
