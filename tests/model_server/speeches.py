"""The protocols that the server speaks, as values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.model_server import anthropic_wire, responses_wire
from tests.model_server.answers import Request
from tests.model_server.wire import WireAnswer, completion, events

Headers = dict[str, str]


@dataclass(frozen=True)
class Speech:
    """A protocol."""

    as_chat: Callable[[Request], Request]
    whole: Callable[[WireAnswer], Any]
    events: Callable[[WireAnswer], Iterator[Any]]
    error: Callable[[int, Any], Any]
    error_event: Callable[[int, Any], Any]
    has_event_names: bool
    """Whether events have names, and no end mark."""

    def parts(self, reply: WireAnswer) -> list[bytes]:
        """The events as they are sent."""
        return [self.part(event) for event in self.events(reply)] + (
            [] if self.has_event_names else [b"data: [DONE]\n\n"]
        )

    def part(self, event: Any) -> bytes:
        name = f"event: {event['type']}\n".encode() if self.has_event_names and isinstance(event, dict) else b""
        return name + b"data: " + json.dumps(event).encode() + b"\n\n"


def _openai_error(status: int, body: Any) -> Any:
    return body


SPEECHES = {
    "chat": Speech(lambda request: request, completion, events, _openai_error, _openai_error, has_event_names=False),
    "responses": Speech(
        responses_wire.as_chat,
        responses_wire.response,
        responses_wire.response_events,
        _openai_error,
        lambda _, body: responses_wire.error_event(body),
        has_event_names=True,
    ),
    "anthropic": Speech(
        anthropic_wire.as_chat,
        anthropic_wire.message,
        anthropic_wire.message_events,
        anthropic_wire.error_body,
        anthropic_wire.error_body,
        has_event_names=True,
    ),
}
PATHS = {"/v1/chat/completions": "chat", "/v1/responses": "responses", "/v1/messages": "anthropic"}
COUNT_TOKENS = "/v1/messages/count_tokens"
