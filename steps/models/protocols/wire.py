"""What is to be known of a protocol: where requests go, and how its bodies are those of chat completions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from swe_argo.steps.contracts.record import to_json
from swe_argo.steps.contracts.wire_protocol import WireProtocol

Body = dict[str, Any]
"""JSON of a request or of an answer."""


class Trouble(StrEnum):
    """Why an agent gets no answer to go on with."""

    WRONG = "wrong"
    """The request is wrong, or refused in words that do not tell why."""
    TOO_LONG = "too_long"
    """The conversation: agents know how to shorten it."""
    FILTERED = "filtered"
    NO_PAGE = "no_page"
    """Nothing is at this path."""
    ENDED = "ended"
    """The agent's time, or another limit of its run, is used up."""


class AnswerAssembly(Protocol):
    """The events of one streamed answer so far."""

    begun: bool
    """Whether the model has said anything."""
    done: bool
    """Whether all was said."""

    def add(self, data: str) -> Body | None:
        """Take an event; an error that it tells of is handed back. Raises ValueError where it is no JSON object."""

    def whole(self) -> Body:
        """What the endpoint would have answered without streaming."""


@dataclass(frozen=True)
class Wire:
    """One protocol. None of the functions changes what it is given; of JSON of another shape they raise AttributeError,
    KeyError, TypeError or ValueError."""

    protocol: WireProtocol
    path: str
    """Below the base URL."""
    answer: str
    """What an answer is called."""
    fields: Mapping[str, tuple[str, ...]]
    """Field of ``LlmSpec`` -> where it stands in a request, from the outside in."""
    assembly: Callable[[], AnswerAssembly]
    chat_request: Callable[[Body], Body]
    """A request -> the same as a chat completion's."""
    completion: Callable[[Body], Body]
    """An answer, whole -> the same as a chat completion."""
    answer_of: Callable[[Body, Body], Body]
    """A chat completion, and the request in this protocol -> the same as an answer in this protocol."""
    events: Callable[[Body, Body], bytes]
    """An answer, whole, and its request -> the same as a stream of server-sent events, all in one."""
    error: Callable[[Trouble, str], Body]
    """What an agent is told, in one line -> the body of an error."""
    error_stream: Callable[[Trouble, str], bytes | None] = lambda _trouble, _told: None
    """The same where a stream was asked for and the protocol tells it by one, with status 200."""


COST_FIELDS = ("cost", "estimated_cost", "is_byok", "cost_details")
"""Fields of an answer's usage by which routers report its cost, in every protocol."""

STATUS = {Trouble.NO_PAGE: 404}
"""Every other is 400: a request that is not to be made again as it is. Agents ask again after 408, 429 and 5xx."""


def event(data: Body, name: str = "") -> bytes:
    """One server-sent event."""
    return (f"event: {name}\n" if name else "").encode() + b"data: " + dump(data) + b"\n\n"


def dump(body: Body) -> bytes:
    """JSON as it is sent. Of what is no text (a lone surrogate) JSON's own escape is left."""
    return to_json(body, separators=(",", ":")).encode()
