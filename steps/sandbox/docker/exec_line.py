"""The stdin and stdout of one exec in a container, by the engine's raw stream: the SDK's reader has no timeout."""

from __future__ import annotations

import socket
from typing import Any

import requests
from docker import APIClient

_HEAD_BYTES = 8
"""Size of a frame's header: the stream's number (1 byte), zeros (3), the payload's length (4)."""
_STDOUT = 1


class ExecLine:
    """A started exec. Its methods raise OSError if the stream breaks; see ``open_shell.Line``."""

    def __init__(self, api: APIClient, exec_id: str) -> None:
        stream: Any = api.exec_start(exec_id, socket=True)
        self._response: requests.Response = stream._response
        self._socket: socket.socket = getattr(stream, "_sock", stream)
        self._timeout_s: float = api.timeout
        self._frames = bytearray()

    def send(self, data: bytes) -> None:
        """Send all of ``data``."""
        self._socket.settimeout(self._timeout_s)
        self._socket.sendall(data)

    def receive(self, silence_s: float) -> bytes:
        """Return the next bytes of stdout, at least one. Raises EOFError at its end."""
        self._socket.settimeout(silence_s)
        while not (output := self._take_frames()):
            piece = self._socket.recv(1 << 18)
            if not piece and self._frames:
                raise ConnectionError("the exec's output stream broke inside a frame")
            if not piece:
                raise EOFError("the exec's output stream has ended")
            self._frames += piece
        return output

    def close(self) -> None:
        """Close the stream."""
        self._response.close()

    def _take_frames(self) -> bytes:
        """Return the stdout in the complete frames received so far, and drop these frames."""
        output, at = bytearray(), 0
        while len(self._frames) - at >= _HEAD_BYTES:
            end = at + _HEAD_BYTES + int.from_bytes(self._frames[at + 4 : at + _HEAD_BYTES], "big")
            if end > len(self._frames):
                break
            if self._frames[at] == _STDOUT:
                output += self._frames[at + _HEAD_BYTES : end]
            at = end
        del self._frames[:at]
        return bytes(output)
