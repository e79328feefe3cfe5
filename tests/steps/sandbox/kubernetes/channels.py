"""A server that speaks v5.channel.k8s.io to one client at a time, and can stop anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import parse_qs, urlsplit

from kubernetes.client import Configuration

from swe_argo.steps.kube.client import Cluster

Play = Callable[["Line"], None]
"""What the server does with a connection."""


class Line:
    """A connection whose request was read, from the server's end."""

    def __init__(self, line: socket.socket, head: bytes) -> None:
        self.line = line
        self.head = head.decode()
        self.query = parse_qs(urlsplit(self.head.split(" ", 2)[1]).query)

    def answer(self, status: int, body: dict[str, object] | str, headers: str = "") -> None:
        """Refuse the handshake."""
        text = body if isinstance(body, str) else json.dumps(body)
        self.line.sendall(f"HTTP/1.1 {status} Whatever\r\n{headers}Content-Length: {len(text)}\r\n\r\n{text}".encode())

    def read_body(self) -> None:
        """What came after the head: a connection that is closed with something unread is cut, not ended."""
        length = next((line for line in self.head.split("\r\n") if line.lower().startswith("content-length:")), ":0")
        self._exactly(int(length.partition(":")[2]))

    def accept(self) -> None:
        """Shake hands."""
        key = next(line for line in self.head.split("\r\n") if line.lower().startswith("sec-websocket-key"))
        digest = hashlib.sha1(f"{key.split(': ')[1]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
        proof = base64.b64encode(digest).decode()
        self.line.sendall(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {proof}\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n".encode()
        )

    def say(self, channel: int, data: bytes, opcode: int = 2) -> None:
        """One frame."""
        payload = bytes((channel,)) + data if opcode == 2 else data
        size = len(payload)
        length = bytes((size,)) if size < 126 else struct.pack(">BH", 126, size)
        self.line.sendall(
            bytes((0x80 | opcode,)) + (length if size < 1 << 16 else struct.pack(">BQ", 127, size)) + payload
        )

    def end(self, status: dict[str, object]) -> None:
        """The verdict, and good-bye."""
        self.say(3, json.dumps(status).encode())
        self.say(0, struct.pack(">H", 1000), opcode=8)

    def hear(self, size: int) -> bytes:
        """So many bytes of the client's stdin."""
        heard = b""
        while len(heard) < size:
            head = self._exactly(2)
            length = head[1] & 0x7F
            if length >= 126:
                length = int.from_bytes(self._exactly(2 if length == 126 else 8), "big")
            mask, data = self._exactly(4), self._exactly(length)
            plain = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
            assert plain[0] == 0
            heard += plain[1:]
        return heard

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (piece := self.line.recv(size - len(data))):
            data += piece
        assert len(data) == size
        return data


@contextmanager
def serving(play: Play) -> Iterator[Cluster]:
    """A cluster whose API server does this with each connection, one after another."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_serve, args=(server, play))
        thread.start()
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{server.getsockname()[1]}"
        configuration.api_key = {"authorization": "Bearer secret"}
        try:
            yield Cluster(configuration, "somewhere", "fake")
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(server: socket.socket, play: Play) -> None:
    with suppress(OSError):  # the listening socket was shut
        while True:
            line, _ = server.accept()
            with line, suppress(ConnectionError):
                line.settimeout(10)
                head = b""
                while not head.endswith(b"\r\n\r\n") and (piece := line.recv(1)):
                    head += piece
                request = Line(line, head)
                request.read_body()
                play(request)
