"""Parser of a gateway's output: bytes -> events, with all limits enforced again."""

from __future__ import annotations

import time

from swe_argo.steps.agents.gateway.events import Ended, GatewayEvent, GatewayRequest, Printed, Refused, Withdrawn
from swe_argo.steps.agents.gateway.frames import (
    BodyFrame,
    ForgedFrameError,
    OutputFrame,
    RequestFrame,
    inflate,
    plain_bytes,
    read_frame,
)
from swe_argo.steps.agents.gateway.limits import GatewayLimits

_LINE_MARGIN_BYTES = 128 << 10
"""Bytes allowed beyond a limit, for instance for a frame's other fields."""
_MAX_STORED_BODIES = 4
"""Bodies that the gateway stores, see program/bodies.go."""
_RATE_MARGIN = 3.0
"""Allowance for requests that arrived steadily and are read at once."""


class FrameReader:
    """Incremental parser of frames. Methods raise ForgedFrameError for output that the gateway cannot have written."""

    def __init__(self, limits: GatewayLimits) -> None:
        self.port: int | None = None
        """The gateway's port, once it listens."""
        self._limits = limits
        # Base64 makes a body a third longer.
        self._longest = limits.body_bytes * 4 // 3 + limits.header_bytes + limits.printed_bytes + _LINE_MARGIN_BYTES
        self._buffer = bytearray()
        self._bodies: dict[int, bytes] = {}
        """Request -> body, for those to which later requests may refer."""
        self._last = 0
        """Number of the newest request."""
        self._waiting: set[int] = set()
        """Numbers of the requests without an answer."""
        self._printed = {"stdout": 0, "stderr": 0}
        """Bytes received per output stream."""
        self._began = time.monotonic()

    def feed(self, data: bytes) -> list[GatewayEvent]:
        """Return the events of the lines completed by ``data``."""
        self._buffer += data
        *lines, rest = bytes(self._buffer).split(b"\n")
        if len(rest) > self._longest:
            raise ForgedFrameError(f"a line of more than {self._longest} bytes")
        self._buffer = bytearray(rest)
        return [event for line in lines if (event := self._event(read_frame(line))) is not None]

    def mark_answered(self, number: int) -> bool:
        """Mark a request as answered. Return whether it was waiting."""
        is_waiting = number in self._waiting
        self._waiting.discard(number)
        return is_waiting

    def _event(self, frame: OutputFrame) -> GatewayEvent | None:
        """Return a frame's event; None for the frame with the gateway's port, which is stored."""
        if frame.request is not None:
            return self._request(frame.request)
        if frame.printed is not None:
            data = plain_bytes(frame.printed.data)
            self._printed[frame.printed.stream] += len(data)
            if self._printed[frame.printed.stream] > self._limits.printed_bytes + _LINE_MARGIN_BYTES:
                raise ForgedFrameError("more output than a gateway passes on")
            return Printed(frame.printed.stream, data, frame.printed.skipped)
        if frame.refused is not None:
            return Refused(frame.refused.method[:20], frame.refused.path[:200], frame.refused.status)
        if frame.ended is not None:
            refused = {int(status): count for status, count in frame.ended.refused.items() if status.isdigit()}
            code = None if frame.ended.failure else frame.ended.exit_code
            ended = frame.ended
            return Ended(code, ended.killed, ended.over, failure=ended.failure[:300], refused=refused)
        if frame.withdrawn is not None:
            return Withdrawn(frame.withdrawn)
        self.port = frame.listening
        return None

    def _request(self, frame: RequestFrame) -> GatewayRequest:
        """Return a request, checked against the limits that the gateway enforces."""
        limits = self._limits
        if frame.number != self._last + 1:
            raise ForgedFrameError(f"request {frame.number} after {self._last}")
        self._last = frame.number
        if not limits.allows(frame.method, frame.path):
            raise ForgedFrameError(f"a request that is not allowed: {frame.method} {frame.path[:200]}")
        header_bytes = sum(len(name) + len(value) for name, value in frame.headers)
        if len(frame.headers) > limits.headers or header_bytes > limits.header_bytes:
            raise ForgedFrameError("more headers than are allowed")
        # The gateway allows the requests of 2 seconds at once, then this rate; here both have a margin.
        if frame.number > limits.requests_per_second * (_RATE_MARGIN + 1.1 * (time.monotonic() - self._began)):
            raise ForgedFrameError(f"more than {limits.requests_per_second:g} requests per second")
        if len(self._waiting) >= limits.max_concurrent:
            raise ForgedFrameError(f"more than {limits.max_concurrent} concurrent requests")
        body = self._body(frame.number, frame.body)
        self._waiting.add(frame.number)
        headers: dict[str, str] = {}
        for name, value in frame.headers:
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return GatewayRequest(frame.number, frame.method, frame.path, headers, body)

    def _body(self, number: int, frame: BodyFrame) -> bytes:
        """Return a request's body from its difference to an earlier one, and store the bodies still needed."""
        base = self._bodies.get(frame.base, b"")
        if (
            frame.size > self._limits.body_bytes
            or frame.prefix + frame.suffix > min(frame.size, len(base))
            or len(frame.stored_requests) > _MAX_STORED_BODIES
        ):
            raise ForgedFrameError(f"an invalid body of {frame.size} bytes")
        middle = inflate(frame.data, frame.size - frame.prefix - frame.suffix)
        body = base[: frame.prefix] + middle + (base[-frame.suffix :] if frame.suffix else b"")
        bodies = self._bodies | {number: body}
        self._bodies = {stored: bodies[stored] for stored in frame.stored_requests if stored in bodies}
        return body
