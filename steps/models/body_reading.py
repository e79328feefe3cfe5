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
        what: str,
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
        super().__init__(what)


class ResponseTimeoutError(Exception):
    """The call's time limit passed while the model was still generating."""


def read_body(response: Any, headers: Mapping[str, str], until: float, wire: Wire) -> dict[str, Any]:
    """Return the body of a response, in its protocol. Raises DroppedError, ResponseTimeoutError."""
    if "event-stream" in headers.get("content-type", ""):
        return _streamed(response.iter_bytes(), until, wire)
    return _whole(response.iter_bytes(), until, wire)


def _in_time(parts: Iterable[Any], until: float) -> Iterator[Any]:
    for part in parts:
        yield part
        if time.monotonic() > until:
            raise ResponseTimeoutError


def _whole(parts: Iterable[bytes], until: float, wire: Wire) -> dict[str, Any]:
    # Some proxies keep a connection open with blanks; these are not part of the answer.
    data = bytearray()
    try:
        for part in _in_time(parts, until):
            data += part
    except ResponseTimeoutError:
        raise DroppedError("no whole answer within the time of the call", silent=True) from None
    try:
        body = json.loads(bytes(data))
    except (ValueError, RecursionError):
        if is_event_stream(bytes(data[:100])):
            return _streamed([bytes(data)], math.inf, wire)
        raise DroppedError(f"the answer is no JSON: {bytes(data[:200])!r}", foreign=True) from None
    if not isinstance(body, dict):
        raise DroppedError(f"the answer is no JSON object: {bytes(data[:200])!r}", foreign=True)
    return body


def _streamed(parts: Iterable[bytes], until: float, wire: Wire) -> dict[str, Any]:
    answer, odd = wire.assembly(), list[str]()
    try:
        for data in stream_events(stream_lines(_in_time(parts, until)), odd):
            if (error := answer.add(data)) is not None:
                return error
    except ResponseTimeoutError:
        if answer.begun:
            raise
        raise DroppedError("no answer within the time of the call", silent=True) from None
    except (ValueError, RecursionError):
        raise DroppedError("the stream is no JSON") from None
    except (AttributeError, KeyError, TypeError):  # JSON of another shape
        raise DroppedError(f"the stream is no {wire.answer}") from None
    if answer.done:
        return answer.whole()
    if odd and not answer.begun:
        return _whole([line.encode() + b"\n" for line in odd], math.inf, wire)
    raise DroppedError("the stream ended before the answer did")
