"""Frames exchanged between the model gateway and the step. A sandbox's output is untrusted and fully validated."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from swe_argo.steps.agents.gateway.events import GatewayLimit

Count = Annotated[int, Field(ge=0)]


class ForgedFrameError(Exception):
    """Output that the model gateway cannot have written."""


class Frame(BaseModel):
    """Part of a line; see program/frames.go."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class BodyFrame(Frame):
    """A body as the difference from request ``base``'s body; see program/bodies.go."""

    size: Count
    base: Count = 0
    prefix: Count = 0
    suffix: Count = 0
    data: str
    stored_requests: list[Count] = Field(alias="kept")


class RequestFrame(Frame):
    """A request that waits for its answer."""

    number: int
    method: str
    path: str
    headers: Annotated[list[Annotated[list[str], Field(min_length=2, max_length=2)]], Field(max_length=1000)]
    body: BodyFrame


class PrintedFrame(Frame):
    """Output of the agent."""

    stream: str = Field(pattern="^(stdout|stderr)$")
    skipped: Count = 0
    data: str


class RefusedFrame(Frame):
    """A request that the gateway answered itself."""

    method: str
    path: str
    status: int


class EndedFrame(Frame):
    """The gateway's last line."""

    exit_code: int
    killed: bool = False
    over: GatewayLimit | None = None
    refused: dict[str, Count] = {}
    failure: str = ""


class OutputFrame(Frame):
    """A line; exactly one field is set."""

    listening: int | None = None
    request: RequestFrame | None = None
    withdrawn: int | None = None
    printed: PrintedFrame | None = None
    refused: RefusedFrame | None = None
    ended: EndedFrame | None = None


def read_frame(line: bytes) -> OutputFrame:
    """Parse a line. Raises ForgedFrameError if it is invalid."""
    try:
        return OutputFrame.model_validate_json(line)
    except ValidationError as error:
        raise ForgedFrameError(f"a line of {len(line)} bytes: {error.errors()[0]['msg']}") from error


def answer_lines(number: int, status: int, headers: dict[str, str], body: bytes) -> bytes:
    """Return the two lines that answer a request, the second with its body; see program/answers.go."""
    encoded_body = base64.b64encode(_deflate(body))
    fields = {
        "number": number,
        "status": status,
        "headers": list(headers.items()),
        "size": len(body),
        "letters": len(encoded_body),
    }
    return json.dumps(fields).encode() + b"\n" + encoded_body + b"\n"


def plain_bytes(data: str) -> bytes:
    """Decode base64. Raises ForgedFrameError if it is invalid."""
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise ForgedFrameError(f"base64: {error}") from error


def inflate(data: str, size: int) -> bytes:
    """Decompress to exactly ``size`` bytes, never more. Raises ForgedFrameError if the size differs."""
    reader = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    try:
        plain = reader.decompress(plain_bytes(data), size + 1)
    except zlib.error as error:
        raise ForgedFrameError(f"compressed data: {error}") from error
    if len(plain) != size:
        raise ForgedFrameError(f"compressed data of another length than {size}")
    return plain


def _deflate(data: bytes) -> bytes:
    writer = zlib.compressobj(1, wbits=-zlib.MAX_WBITS)
    return writer.compress(data) + writer.flush()
