"""Reader of response bodies: joins a streamed or plain body into one JSON object within the call's time limit."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from swe_argo.steps.models.protocols.wire import Wire
from swe_argo.steps.models.response_body import ModelResponse
from swe_argo.steps.models.stream import is_event_stream, stream_events, stream_lines


class DroppedError(Exception):
    """No complete answer: no connection, a dropped one, a timeout, or a truncated or empty body."""

    def __init__(
        self,
        message: str,
        *,
        was_sent: bool = True,
        silent: bool = False,
        response: ModelResponse | None = None,
        foreign: bool = False,
    ) -> None:
        self.was_sent = was_sent
        """Whether the request may have reached the endpoint."""
        self.silent = silent
        """Whether the cause was a timeout."""
        self.response = response
        """The partial response, if any: it may have been billed."""
        self.foreign = foreign
        """Whether the body is not the API's JSON."""
        super().__init__(message)


class ResponseTimeoutError(Exception):
    """The call's time limit passed while the model was still generating."""


def read_body(response: Any, headers: Mapping[str, str], deadline: float, wire: Wire) -> dict[str, Any]:
    """Return the body of a response, in its protocol. ``deadline`` is in monotonic time.

    Raises DroppedError if the body is incomplete or malformed, or if no output came in time, and ResponseTimeoutError
    if the model was still generating at the deadline.
    """
    if "event-stream" in headers.get("content-type", ""):
        return _read_stream(response.iter_bytes(), deadline, wire)
    return _read_plain(response.iter_bytes(), deadline, wire)


def _until_deadline(parts: Iterable[Any], deadline: float) -> Iterator[Any]:
    """Yield the parts. Raises ResponseTimeoutError if one arrives after the deadline."""
    for part in parts:
        yield part
        if time.monotonic() > deadline:
            raise ResponseTimeoutError


def _read_plain(parts: Iterable[bytes], deadline: float, wire: Wire) -> dict[str, Any]:
    """Return a plain body; a stream with the wrong content type is read as a stream.

    Raises DroppedError if it is incomplete or not a JSON object.
    """
    # Some proxies keep a connection open with blanks; these are not part of the answer.
    data = bytearray()
    try:
        for part in _until_deadline(parts, deadline):
            data += part
    except ResponseTimeoutError:
        raise DroppedError("no complete answer within the call's timeout", silent=True) from None
    try:
        body = json.loads(bytes(data))
    except (ValueError, RecursionError):
        if is_event_stream(bytes(data[:100])):
            return _read_stream([bytes(data)], math.inf, wire)
        raise DroppedError(f"the answer is not JSON: {bytes(data[:200])!r}", foreign=True) from None
    if not isinstance(body, dict):
        raise DroppedError(f"the answer is not a JSON object: {bytes(data[:200])!r}", foreign=True)
    return body


def _read_stream(parts: Iterable[bytes], deadline: float, wire: Wire) -> dict[str, Any]:
    """Return the body of a stream; a plain body labelled as a stream is read as one.

    Raises DroppedError and ResponseTimeoutError as ``read_body`` does.
    """
    answer, other_lines = wire.assembly(), list[str]()
    try:
        for data in stream_events(stream_lines(_until_deadline(parts, deadline)), other_lines):
            if (error := answer.add(data)) is not None:
                return error
    except ResponseTimeoutError:
        if answer.has_output:
            raise
        raise DroppedError("no answer within the call's timeout", silent=True) from None
    except (ValueError, RecursionError):
        raise DroppedError("the stream is not JSON") from None
    except (AttributeError, KeyError, TypeError):  # JSON of another shape
        raise DroppedError(f"the stream is not a {wire.answer}") from None
    if answer.is_complete:
        return answer.build_body()
    if other_lines and not answer.has_output:
        return _read_plain([line.encode() + b"\n" for line in other_lines], math.inf, wire)
    raise DroppedError("the stream ended before the answer was complete")
