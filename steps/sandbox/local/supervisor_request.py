"""A request to the supervisor of a local sandbox, and the command output that comes back on it."""

from __future__ import annotations

import json
import os
import select
import socket
import time
from typing import Any, Self

GRACE_S = 15.0
"""Seconds after its timeout by which a command's end must be reported, or the supervisor counts as hung."""
SETTLE_S = 0.1
"""Seconds to wait for output still on its way (``> >(tee log)``) after a command has ended."""


class SupervisorRequest:
    """A request on a socket of its own."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.fds: list[int] = []
        self._pending = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket, which ends a command that still runs."""
        self.sock.close()
        for fd in self.fds:
            os.close(fd)
        self.fds = []

    def answer(self, patience_s: float) -> dict[str, Any]:
        """Return the next message; keep descriptors that came with it until the call ends. Raises OSError."""
        self.sock.settimeout(patience_s)
        while b"\n" not in self._pending:
            data, fds, _, _ = socket.recv_fds(self.sock, 4096, 3, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
            self.fds += fds
            if not data:
                raise ConnectionResetError
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message


class Stream:
    """An output pipe, read up to a limit; further output is discarded so that the writer does not block."""

    def __init__(self, fd: int, limit: int) -> None:
        self.fd, self.limit = fd, limit
        self.data = bytearray()
        self.truncated = False

    def pump(self) -> bool:
        """Read what is available; return False at the end."""
        chunk = os.read(self.fd, 1 << 20)
        room = self.limit - len(self.data)
        self.data += chunk[:room]
        self.truncated |= len(chunk) > room
        return bool(chunk)


def follow(call: SupervisorRequest, streams: list[Stream], give_up: float) -> dict[str, Any]:
    """Read output until the command's end is reported, then the rest still on its way. Raises OSError."""
    poll = select.poll()
    for fd in [call.sock.fileno(), *call.fds]:
        poll.register(fd, select.POLLIN)
    open_streams = {stream.fd: stream for stream in streams}
    ending: dict[str, Any] = {}
    while not ending or open_streams:
        remaining_s = give_up - time.monotonic()
        events = poll.poll(max(0, remaining_s) * 1000)
        if not events and ending:
            break
        if not events:
            raise TimeoutError
        for fd, _ in events:
            if fd in open_streams:
                if not open_streams[fd].pump():
                    poll.unregister(fd)
                    del open_streams[fd]
            elif not ending:
                ending = call.answer(GRACE_S)
                poll.unregister(fd)
                give_up = time.monotonic() + SETTLE_S
        # A child may print without end; everything in the pipes when the command ended has been read by now.
        if ending and remaining_s < 0:
            break
    return ending
