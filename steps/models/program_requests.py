"""An agent program's requests, read: which of them ask a model, for what, and what is recorded of each."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from urllib.parse import urlsplit

from swe_argo.steps.contracts.trajectory import Metrics, StopReason
from swe_argo.steps.contracts.wire_protocol import WireProtocol
from swe_argo.steps.models.images import text_of
from swe_argo.steps.models.json_depth import DEEPEST, is_deeper
from swe_argo.steps.models.protocols.chat_shape import check_chat_request
from swe_argo.steps.models.protocols.table import WIRES
from swe_argo.steps.models.protocols.wire import Body, Wire
from swe_argo.steps.models.reply import Message, Reply, ToolDefinition

_SHAPE = (AttributeError, KeyError, TypeError, ValueError, IndexError, RecursionError)
"""What comes of reading JSON of another shape."""


@dataclass(frozen=True)
class ProgramRequest:
    """A request for an answer of a model, and the same as a chat completion's."""

    body: Body
    chat: Body


@dataclass(frozen=True)
class ModelCall:
    """A call as it is recorded. Messages, tools and reply are in the form of chat completions, whatever was spoken."""

    protocol: WireProtocol
    """The agent's."""
    model: str
    """The one that was asked, as the endpoint knows it."""
    system: str
    """What leads the conversation as the system's or the developer's words."""
    messages: list[Message]
    """Everything after that."""
    tools: list[ToolDefinition]
    reply: Reply | None
    metrics: Metrics
    """All token ids of the prompt are told, those of the conversation's earlier calls, too."""
    ended: StopReason | None = None
    """Why there is no reply to go on with: context_overflow, refusal, content_filter, request_refused, call_timeout."""
    detail: str = ""
    """The same in the endpoint's words."""


def api_path(path: str) -> str:
    """The path without its query and the version that some agents put before it."""
    return urlsplit(path).path.rstrip("/").removeprefix("/v1")


def wire_at(path: str) -> Wire | None:
    """The protocol in which a model is asked there."""
    return next((wire for wire in WIRES.values() if api_path(path) == wire.path), None)


def asks_model(method: str, path: str) -> bool:
    """Whether a request is one for an answer of the model, by whatever protocol."""
    return method == "POST" and wire_at(path) is not None


def read_request(headers: Mapping[str, str], body: bytes, wire: Wire) -> ProgramRequest:
    """The request of a body. Raises ValueError with what is to be told of one that cannot be read."""
    encoding = headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise ValueError(f"the body is {encoding}: send it as it is")
    try:
        request = json.loads(body, parse_float=_finite, parse_constant=_finite)
        if is_deeper(request):
            raise ValueError(f"more than {DEEPEST} levels")
        chat = wire.chat_request(request)
        check_chat_request(chat)
    except _SHAPE as error:
        raise ValueError(f"the body is no request of this protocol: {type(error).__name__}: {error}") from None
    return ProgramRequest(request, chat)


def unanswered_call(asked: Wire, model: str, request: ProgramRequest) -> ModelCall:
    """The call that a request makes, as it is recorded until it is answered."""
    messages, tools = request.chat["messages"], request.chat.get("tools") or []
    leading = sum(1 for _ in takewhile(lambda each: each["role"] in ("system", "developer"), messages))
    system = "\n\n".join(text_of(each.get("content")) for each in messages[:leading])
    return ModelCall(asked.protocol, model, system, messages[leading:], tools, None, Metrics())


def _finite(text: str) -> float:
    """A number that JSON has: none may be sent that is not finite."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is no number of JSON")
    return number
