"""Frames of a websocket as a server sends them (RFC 6455, 5.2): unmasked, none of them split."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

STATUS = b"\x03"
"""The channel of the exit code, first byte of a frame's payload (v5.channel.k8s.io)."""


async def whole_frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[bytes, bytes]]:
    """Each frame as it came, and its payload, until the connection ends."""
    while True:
        try:
            head = await reader.readexactly(2)
            length = head[1] & 0x7F
            if length >= 126:
                head += await reader.readexactly(2 if length == 126 else 8)
                length = int.from_bytes(head[2:], "big")
            payload = await reader.readexactly(length)
        except asyncio.IncompleteReadError:
            return
        yield head + payload, payload
