"""An agent program's model calls: each request as it came out of the sandbox, answered by the one model client."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from types import TracebackType
from typing import Protocol
from urllib.parse import urlsplit

from steps.contracts.run_spec import RunSpec
from steps.contracts.trajectory import Metrics, StopReason, Usage
from steps.contracts.wire_protocol import WireProtocol
from steps.errors import one_line
from steps.models.call import Answered
from steps.models.client import open_model
from steps.models.endpoint import wire_name
from steps.models.images import text_of
from steps.models.protocols.table import WIRES, endpoint_wire
from steps.models.protocols.wire import STATUS, Body, Trouble, Wire, dump
from steps.models.reply import Message, NoReplyError, Reply, ToolDefinition
from steps.models.request_body import RequestDialect

JSON = {"content-type": "application/json"}
STREAM = {"content-type": "text/event-stream", "cache-control": "no-cache"}
FINAL = {"x-should-retry": "false"}
"""By which the clients of OpenAI and Anthropic are told not to ask again."""
PASSED = ("anthropic-version", "anthropic-beta")
"""Headers of an agent that the endpoint is shown."""
TOKEN = 4
"""Characters that a token is taken for where the endpoint does not count (OpenAI's rule of thumb for English)."""
IMAGE = 1500
"""Tokens that an image is taken for: about what one of 1.15 megapixels takes of Anthropic's models."""
_SHAPE = (AttributeError, KeyError, TypeError, ValueError, IndexError, RecursionError)
_TROUBLES = {
    StopReason.CONTEXT_OVERFLOW: Trouble.TOO_LONG,
    StopReason.CONTENT_FILTER: Trouble.FILTERED,
    StopReason.CALL_TIMEOUT: Trouble.ENDED,
}


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


@dataclass(frozen=True)
class Forwarded:
    """What the agent is answered."""

    status: int
    headers: dict[str, str]
    body: bytes
    call: ModelCall | None = None
    """None where no model was asked."""


class RequestSender(Protocol):
    """What answers requests: ``Client``, or a model that has no endpoint (``ModelSender``). Any threads may ask it."""

    @property
    def usage(self) -> Usage: ...  # noqa: D102

    @property
    def lost_s(self) -> float: ...  # noqa: D102

    @property
    def endpoint(self) -> str: ...  # noqa: D102

    @property
    def wire_model(self) -> str: ...  # noqa: D102

    def close(self) -> None: ...  # noqa: D102

    def forward(  # noqa: D102
        self,
        request: Body,
        wording: RequestDialect,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        goes_on: bool = False,
    ) -> Answered: ...


class Forwarder:
    """One unit's line to the endpoint for an agent program. Several threads may use it at a time."""

    def __init__(self, spec: RunSpec, client: RequestSender, speaks: Collection[WireProtocol]) -> None:
        self._spec, self._client, self._speaks = spec, client, speaks
        self._wordings: dict[tuple[WireProtocol, str], RequestDialect] = {}
        self.goes_on = False
        """Whether the endpoint took requests of this agent before, in an earlier try."""

    @property
    def usage(self) -> Usage:
        """Of all calls so far, those that failed included."""
        return self._client.usage

    @property
    def lost_s(self) -> float:
        """As ``Model.lost_s``."""
        return self._client.lost_s

    @property
    def endpoint(self) -> str:
        """The address, without what may be secret in it."""
        return self._client.endpoint

    @property
    def model(self) -> str:
        """The name by which an agent asks for the run's model; one that it does not know is a helper's."""
        return self._client.wire_model

    @property
    def helper_model(self) -> str:
        """The name by which it asks for the model of its helpers."""
        return wire_name(self._spec.agent.helper_model or "") or self.model

    def __enter__(self) -> Forwarder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def answer(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, timeout_s: float | None = None
    ) -> Forwarded:
        """What to answer; ``headers`` in lower case. All that it takes may last ``timeout_s`` seconds together.

        Whatever the agent did wrong is told to it. Raises InfraError when the endpoint failed, retries included, and
        ConfigError for a dead key, a used-up quota, a request that the endpoint refuses at once.
        """
        where = urlsplit(path)
        place, asked = _place(path), _asked_at(path)
        if method == "POST" and asked:
            read = _read(headers, body, asked)
            return self._ask(read, asked, _passed(headers), timeout_s) if isinstance(read, _Request) else read
        anthropic = WIRES[WireProtocol.ANTHROPIC]
        if method == "POST" and place == f"{anthropic.path}/count_tokens":
            read = _read(headers, body, anthropic)
            return self._count(read) if isinstance(read, _Request) else read
        if method == "GET" and (place == "/models" or place.startswith("/models/")):
            return self._models(place.removeprefix("/models").removeprefix("/"))
        if method in ("GET", "HEAD") and not place:
            return Forwarded(200, JSON, b"{}")
        spoken = anthropic if "anthropic-version" in headers else WIRES[WireProtocol.CHAT]
        return refused(spoken, Trouble.NO_PAGE, f"there is nothing but a model here: no {method} {where.path[:200]}")

    def read_call(self, path: str, body: bytes) -> ModelCall | None:
        """The call that a request makes, as it is recorded until it is answered; None where it makes none."""
        asked = _asked_at(path)
        read = asked and _read({}, body, asked)
        return _unanswered(asked, self._model_of(read.body), read) if asked and isinstance(read, _Request) else None

    def refuse(self, path: str, why: str) -> Forwarded:
        """The answer to a request that is not to be made any more, as a limit of the run is reached."""
        place = _place(path)
        asked = next((wire for wire in WIRES.values() if place.startswith(wire.path)), WIRES[WireProtocol.CHAT])
        return refused(asked, Trouble.ENDED, why)

    def _ask(self, request: _Request, asked: Wire, headers: dict[str, str], timeout_s: float | None) -> Forwarded:
        wire = endpoint_wire(asked.protocol, self._speaks, self._spec)
        model = self._model_of(request.body)
        wording = self._wordings.setdefault((wire.protocol, model), RequestDialect(model, self._spec.llm, wire=wire))
        sent = request.body if wire is asked else request.chat
        shown = headers if wire is asked and wire.protocol is WireProtocol.ANTHROPIC else {}
        call = _unanswered(asked, model, request)
        try:
            answered = self._client.forward(sent, wording, headers=shown, timeout_s=timeout_s, goes_on=self.goes_on)
        except NoReplyError as error:
            return _told(asked, request, error, replace(call, metrics=error.metrics or Metrics()))
        outcome, call = answered.outcome, replace(call, metrics=answered.metrics)
        if isinstance(outcome, NoReplyError):
            if outcome.reason is StopReason.CONTEXT_OVERFLOW:
                return _told(asked, request, outcome, call)
            call = replace(call, ended=outcome.reason)
        else:
            call = replace(call, reply=outcome)
        return _delivered(_native(answered, asked, wire, request.body), asked, request.body, call)

    def _model_of(self, body: Body) -> str:
        named = str(body.get("model") or "")
        return self.model if named in ("", self.model) else self.helper_model

    def _count(self, request: _Request) -> Forwarded:
        """An estimate: no endpoint but Anthropic's own counts, and agents only ask how full their window is."""
        messages, images = _without_images(request.chat["messages"])
        text = json.dumps([messages, request.chat.get("tools")], ensure_ascii=False)
        return Forwarded(200, JSON, dump({"input_tokens": max(1, len(text) // TOKEN + images * IMAGE)}))

    def _models(self, name: str) -> Forwarded:
        names = [name] if name else list(dict.fromkeys((self.model, self.helper_model)))
        models = [
            {"id": each, "object": "model", "type": "model", "display_name": each, "created": 0, "owned_by": "run",
             "created_at": "1970-01-01T00:00:00Z"}
            for each in names
        ]  # fmt: skip
        if name:
            return Forwarded(200, JSON, dump(models[0]))
        listed: Body = {"object": "list", "data": models, "has_more": False, "first_id": None, "last_id": None}
        return Forwarded(200, JSON, dump(listed))


@dataclass(frozen=True)
class _Request:
    """An agent's request, and the same as a chat completion's."""

    body: Body
    chat: Body


def open_forwarder(spec: RunSpec, speaks: Collection[WireProtocol], *, first_wait_s: float = 1.0) -> Forwarder:
    """For an agent program of this run; ``speaks``: what the endpoint does, as plan found it.

    Raises ConfigError where model or key are missing.
    """
    return Forwarder(spec, open_model(spec, first_wait_s=first_wait_s), speaks)


def asks_model(method: str, path: str) -> bool:
    """Whether a request is one for an answer of the model, by whatever protocol."""
    place = urlsplit(path).path.rstrip("/").removeprefix("/v1")
    return method == "POST" and any(place == wire.path for wire in WIRES.values())


def refused(wire: Wire, trouble: Trouble, told: str, call: ModelCall | None = None) -> Forwarded:
    """An error in the protocol's own words, after which no agent asks the same again."""
    status = STATUS.get(trouble, 400)
    return Forwarded(status, JSON | FINAL, dump(wire.error(trouble, one_line(told, 1000))), call)


def _place(path: str) -> str:
    return urlsplit(path).path.rstrip("/").removeprefix("/v1")


def _asked_at(path: str) -> Wire | None:
    return next((wire for wire in WIRES.values() if _place(path) == wire.path), None)


def _without_images(messages: list[Message]) -> tuple[list[Message], int]:
    """The messages' other parts, and how many images they had."""
    kept, images = [], 0
    for message in messages:
        parts = message.get("content")
        if isinstance(parts, list):
            rest = [part for part in parts if part.get("type") != "image_url"]
            images += len(parts) - len(rest)
            message = message | {"content": rest}  # noqa: PLW2901 - the same message, lighter
        kept.append(message)
    return kept, images


def _passed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in PASSED if name in headers}


def _read(headers: Mapping[str, str], body: bytes, wire: Wire) -> _Request | Forwarded:
    """A request, or what is told of one that cannot be read: it is foreign code that writes them."""
    if headers.get("content-encoding", "identity") != "identity":
        return refused(wire, Trouble.WRONG, f"the body is {headers['content-encoding']}: send it as it is")
    try:
        request = json.loads(body)
        chat = wire.chat_request(request)
        _ = [message["role"] for message in chat["messages"]], dict(request)
    except _SHAPE as error:
        return refused(wire, Trouble.WRONG, f"the body is no request of this protocol: {type(error).__name__}: {error}")
    return _Request(request, chat)


def _native(answered: Answered, asked: Wire, wire: Wire, request: Body) -> Body:
    """The answer in the agent's protocol: as the endpoint wrote it where that speaks it, too."""
    response = answered.response
    if wire is asked and response.native is not None:
        return response.native
    return asked.answer_of(response.body, request)


def _delivered(native: Body, asked: Wire, request: Body, call: ModelCall) -> Forwarded:
    if request.get("stream"):
        return Forwarded(200, dict(STREAM), asked.events(native, request), call)
    return Forwarded(200, dict(JSON), dump(native), call)


def _told(asked: Wire, request: _Request, error: NoReplyError, call: ModelCall) -> Forwarded:
    trouble, told = _TROUBLES.get(error.reason, Trouble.WRONG), one_line(error.detail or str(error.reason), 1000)
    call = replace(call, ended=error.reason)
    if request.body.get("stream") and (stream := asked.error_stream(trouble, told)) is not None:
        return Forwarded(200, dict(STREAM), stream, call)
    return refused(asked, trouble, told, call)


def _unanswered(asked: Wire, model: str, request: _Request) -> ModelCall:
    messages, tools = request.chat["messages"], request.chat.get("tools") or []
    leading = sum(1 for _ in takewhile(lambda each: each["role"] in ("system", "developer"), messages))
    system = "\n\n".join(text_of(each.get("content")) for each in messages[:leading])
    return ModelCall(asked.protocol, model, system, messages[leading:], tools, None, Metrics())
