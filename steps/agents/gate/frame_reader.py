"""Parser of a gateway's output: bytes -> events, with all limits enforced again."""

from __future__ import annotations

import time

from swe_argo.steps.agents.gate.events import Ended, GateEvent, GateRequest, Printed, Refused, Withdrawn
from swe_argo.steps.agents.gate.frames import (
    BodyFrame,
    ForgedFrameError,
    RequestFrame,
    ToldFrame,
    inflate,
    plain_bytes,
    read_frame,
)
from swe_argo.steps.agents.gate.limits import GateLimits

_LINE_MARGIN_BYTES = 128 << 10
_KEPT_BODIES = 4
_RATE_MARGIN = 3.0
"""Allowance for requests that arrived steadily and are read at once."""


class FrameReader:
    """Incremental parser of frames. Methods raise ForgedFrameError for output that the gateway cannot have written."""

    def __init__(self, limits: GateLimits) -> None:
        self.port: int | None = None
        """The gateway's port, once it listens."""
        self._limits = limits
        self._longest = limits.body_bytes * 4 // 3 + limits.header_bytes + limits.printed_bytes + _LINE_MARGIN_BYTES
        self._part = bytearray()
        self._bodies: dict[int, bytes] = {}
        self._last = 0
        self._waiting: set[int] = set()
        self._printed = {"stdout": 0, "stderr": 0}
        self._began = time.monotonic()

    def take(self, data: bytes) -> list[GateEvent]:
        """Return the events of the lines completed by ``data``."""
        self._part += data
        *lines, rest = bytes(self._part).split(b"\n")
        if len(rest) > self._longest:
            raise ForgedFrameError(f"a line of more than {self._longest} bytes")
        self._part = bytearray(rest)
        return [event for line in lines if (event := self._event(read_frame(line))) is not None]

    def answered(self, number: int) -> bool:
        """Mark a request as answered. Return whether it was waiting."""
        there = number in self._waiting
        self._waiting.discard(number)
        return there

    def _event(self, told: ToldFrame) -> GateEvent | None:
        if told.request is not None:
            return self._request(told.request)
        if told.printed is not None:
            data = plain_bytes(told.printed.data)
            self._printed[told.printed.stream] += len(data)
            if self._printed[told.printed.stream] > self._limits.printed_bytes + _LINE_MARGIN_BYTES:
                raise ForgedFrameError("more printed than is passed on")
            return Printed(told.printed.stream, data, told.printed.skipped)
        if told.refused is not None:
            return Refused(told.refused.method[:20], told.refused.path[:200], told.refused.status)
        if told.ended is not None:
            refused = {int(status): count for status, count in told.ended.refused.items() if status.isdigit()}
            code = None if told.ended.failure else told.ended.exit_code
            ended = told.ended
            return Ended(code, ended.killed, ended.over, failure=ended.failure[:300], refused=refused)
        if told.withdrawn is not None:
            return Withdrawn(told.withdrawn)
        self.port = told.listening
        return None

    def _request(self, frame: RequestFrame) -> GateRequest:
        limits = self._limits
        if frame.number != self._last + 1:
            raise ForgedFrameError(f"request {frame.number} after {self._last}")
        self._last = frame.number
        if not limits.allows(frame.method, frame.path):
            raise ForgedFrameError(f"a request that is not allowed: {frame.method} {frame.path[:200]}")
        letters = sum(len(name) + len(value) for name, value in frame.headers)
        if len(frame.headers) > limits.headers or letters > limits.header_bytes:
            raise ForgedFrameError("more headers than are allowed")
        if frame.number > limits.a_second * (_RATE_MARGIN + 1.1 * (time.monotonic() - self._began)):
            raise ForgedFrameError(f"more than {limits.a_second:g} requests a second")
        if len(self._waiting) >= limits.at_a_time:
            raise ForgedFrameError(f"more than {limits.at_a_time} requests at a time")
        body = self._body(frame.number, frame.body)
        self._waiting.add(frame.number)
        headers: dict[str, str] = {}
        for name, value in frame.headers:
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return GateRequest(frame.number, frame.method, frame.path, headers, body)

    def _body(self, number: int, frame: BodyFrame) -> bytes:
        base = self._bodies.get(frame.base, b"")
        if (
            frame.size > self._limits.body_bytes
            or frame.prefix + frame.suffix > min(frame.size, len(base))
            or len(frame.kept) > _KEPT_BODIES
        ):
            raise ForgedFrameError(f"a body of {frame.size} bytes that no gate makes")
        middle = inflate(frame.data, frame.size - frame.prefix - frame.suffix)
        body = base[: frame.prefix] + middle + (base[-frame.suffix :] if frame.suffix else b"")
        known = self._bodies | {number: body}
        self._bodies = {each: known[each] for each in frame.kept if each in known}
        return body
