"""What an agent program is answered: what a model said, or why there is nothing, each in the agent's own protocol."""

from __future__ import annotations

from dataclasses import dataclass, replace

from steps.contracts.trajectory import StopReason
from steps.errors import one_line
from steps.models.call import Answered
from steps.models.plain_completion import plain_completion
from steps.models.program_requests import ModelCall
from steps.models.protocols.chat import CHAT
from steps.models.protocols.wire import STATUS, Body, Trouble, Wire, dump
from steps.models.reply import NoReplyError

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
