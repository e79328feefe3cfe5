"""Parser of agent programs' requests: finds model calls and the parts of them to record."""

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
"""Errors raised by reading JSON of an unexpected shape."""


@dataclass(frozen=True)
class ProgramRequest:
    """A request to a model, in its own protocol and as a chat completion request."""

    body: Body
    chat: Body


@dataclass(frozen=True)
class ModelCall:
    """A recorded model call. Messages, tools and reply are in chat completions form, whatever the protocol."""

    protocol: WireProtocol
    """The agent's protocol."""
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
    """The endpoint's message about it."""


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
    except _SHAPE as error:
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
