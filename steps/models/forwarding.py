"""Forwarder for agent programs: answers each model request from the sandbox through the model client."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Protocol
from urllib.parse import urlsplit

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.trajectory import Metrics, StopReason, Usage
from swe_argo.steps.contracts.wire_protocol import WireProtocol
from swe_argo.steps.errors import InfraError, one_line
from swe_argo.steps.models.call import Answered
from swe_argo.steps.models.client import open_model
from swe_argo.steps.models.endpoint import wire_name
from swe_argo.steps.models.program_answers import (
    Forwarded,
    answer_json,
    forward_answer,
    forward_error,
    refuse_request,
    rename_repeated_calls,
)
from swe_argo.steps.models.program_requests import (
    ModelCall,
    ProgramRequest,
    api_path,
    read_request,
    unanswered_call,
    wire_at,
)
from swe_argo.steps.models.protocols.table import WIRES, endpoint_wire
from swe_argo.steps.models.protocols.wire import Body, Trouble, Wire
from swe_argo.steps.models.reply import Message, NoReplyError
from swe_argo.steps.models.request_body import RequestDialect

ANTHROPIC, CHAT = WIRES[WireProtocol.ANTHROPIC], WIRES[WireProtocol.CHAT]
PASSED = ("anthropic-version", "anthropic-beta")
"""Headers of an agent that are passed on to the endpoint."""
TOKEN = 4
"""Estimated characters per token if the endpoint does not count (OpenAI's rule of thumb for English)."""
IMAGE = 1500
"""Estimated tokens per image: about the count of Anthropic's models for 1.15 megapixels."""
_SHAPE = (AttributeError, KeyError, TypeError, ValueError)
"""Errors raised by reading JSON of an unexpected shape."""
_HEADER = re.compile(r"[ -~]+")
"""Header values that every server can read."""


class RequestSender(Protocol):
    """Thread-safe sender of requests: ``Client``, or a model without an endpoint (``ModelSender``)."""

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
    """A thread-safe connection to the endpoint for one unit's agent program."""

    def __init__(self, spec: RunSpec, client: RequestSender, speaks: Collection[WireProtocol]) -> None:
        self._spec, self._client, self._speaks = spec, client, speaks
        self._wordings: dict[tuple[WireProtocol, str], RequestDialect] = {}
        self.goes_on = False
        """Whether the endpoint accepted requests of this agent in an earlier try."""

    @property
    def usage(self) -> Usage:
        """Return the usage of all calls so far, including failed ones."""
        return self._client.usage

    @property
    def lost_s(self) -> float:
        """Return the lost seconds, see ``Model.lost_s``."""
        return self._client.lost_s

    @property
    def endpoint(self) -> str:
        """Return the URL without parts that may be secret."""
        return self._client.endpoint

    @property
    def model(self) -> str:
        """Return the agent's name for the run's model; any other name stands for the helper model."""
        return self._client.wire_model

    @property
    def helper_model(self) -> str:
        """Return the agent's name for the helper model."""
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
        """Return the response to a request. ``headers`` are lower case; ``timeout_s`` limits the total time.

        The agent's own mistakes become error responses. Raises InfraError if the endpoint failed despite retries, and
        ConfigError for an invalid key, a spent quota or a request that the endpoint refuses at once.
        """
        place, asked, counts = api_path(path), wire_at(path), f"{ANTHROPIC.path}/count_tokens"
        if method == "POST" and (asked or place == counts):
            wire = asked or ANTHROPIC
            try:
                request = read_request(headers, body, wire)
            except ValueError as error:
                return refuse_request(wire, Trouble.WRONG, str(error))
            return self._ask(request, asked, _passed_headers(headers), timeout_s) if asked else self._count(request)
        if method == "GET" and (place == "/models" or place.startswith("/models/")):
            return self._models(place.removeprefix("/models").removeprefix("/"))
        if method in ("GET", "HEAD") and not place:
            return answer_json({})
        spoken = ANTHROPIC if "anthropic-version" in headers else CHAT
        why = f"there is nothing but a model here: no {method} {urlsplit(path).path[:200]}"
        return refuse_request(spoken, Trouble.NO_PAGE, why)

    def read_call(self, path: str, body: bytes) -> ModelCall | None:
        """Return the model call of a request, to be recorded until it is answered; None if it calls no model."""
        asked = wire_at(path)
        try:
            request = asked and read_request({}, body, asked)
        except ValueError:
            return None
        return unanswered_call(asked, self._model_of(request.body), request) if asked and request else None

    def refuse(self, path: str, why: str) -> Forwarded:
        """Return an error response for a request beyond a limit of the run."""
        return refuse_request(wire_at(path) or CHAT, Trouble.ENDED, why)

    def _ask(self, request: ProgramRequest, asked: Wire, headers: dict[str, str], timeout_s: float | None) -> Forwarded:
        wire = endpoint_wire(asked.protocol, self._speaks, self._spec)
        model = self._model_of(request.body)
        wording = self._wordings.setdefault((wire.protocol, model), RequestDialect(model, self._spec.llm, wire=wire))
        sent = request.body if wire is asked else request.chat
        shown = headers if wire is asked and wire.protocol is WireProtocol.ANTHROPIC else {}
        call = unanswered_call(asked, model, request)
        try:
            answered = self._client.forward(sent, wording, headers=shown, timeout_s=timeout_s, goes_on=self.goes_on)
        except NoReplyError as error:
            return forward_error(error, asked, request.body, replace(call, metrics=error.metrics or Metrics()))
        answered = rename_repeated_calls(answered, request.chat["messages"])
        outcome, call = answered.outcome, replace(call, metrics=answered.metrics)
        if isinstance(outcome, NoReplyError):
            if outcome.reason is StopReason.CONTEXT_OVERFLOW:
                return forward_error(outcome, asked, request.body, call)
            call = replace(call, ended=outcome.reason, detail=outcome.detail)
        else:
            call = replace(call, reply=outcome)
        try:
            return forward_answer(answered, asked, wire, request.body, call)
        except _SHAPE as error:
            what = (
                f"the endpoint {self.endpoint} gave no {wire.answer} that can be handed on: {one_line(str(error), 200)}"
            )
            raise InfraError(FailureClass.MODEL, what) from error

    def _model_of(self, body: Body) -> str:
        named = str(body.get("model") or "")
        return self.model if named in ("", self.model) else self.helper_model

    def _count(self, request: ProgramRequest) -> Forwarded:
        """Return an estimated token count: only Anthropic counts, and agents only check their context window."""
        messages, images = _without_images(request.chat["messages"])
        text = json.dumps([messages, request.chat.get("tools")], ensure_ascii=False)
        return answer_json({"input_tokens": max(1, len(text) // TOKEN + images * IMAGE)})

    def _models(self, name: str) -> Forwarded:
        names = [name] if name else list(dict.fromkeys((self.model, self.helper_model)))
        models = [
            {"id": each, "object": "model", "type": "model", "display_name": each, "created": 0, "owned_by": "run",
             "created_at": "1970-01-01T00:00:00Z"}
            for each in names
        ]  # fmt: skip
        if name:
            return answer_json(models[0])
        return answer_json({"object": "list", "data": models, "has_more": False, "first_id": None, "last_id": None})


def open_forwarder(spec: RunSpec, speaks: Collection[WireProtocol], *, first_wait_s: float = 1.0) -> Forwarder:
    """Return a forwarder for an agent program; ``speaks``: the endpoint's protocols as found by plan.

    Raises ConfigError if the model or the key is missing.
    """
    return Forwarder(spec, open_model(spec, first_wait_s=first_wait_s), speaks)


def _without_images(messages: list[Message]) -> tuple[list[Message], int]:
    """Return the messages without images and files, and the number of those."""
    kept, images = [], 0
    for message in messages:
        parts = message.get("content")
        if isinstance(parts, list):
            rest = [part for part in parts if isinstance(part, str) or part.get("type") not in ("image_url", "file")]
            images += len(parts) - len(rest)
            message = message | {"content": rest}  # noqa: PLW2901 - the same message without images
        kept.append(message)
    return kept, images


def _passed_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in PASSED if _HEADER.fullmatch(headers.get(name, ""))}
