"""A request to the supervisor of a local sandbox, and the command's output."""

from __future__ import annotations

import json
import os
import select
import socket
import time
from typing import Any, Self

GRACE_S = 15.0
"""Seconds after a command's timeout until a supervisor without a report counts as hung."""
SETTLE_S = 0.1
"""Seconds to wait for late output (``> >(tee log)``) after a command has ended."""


class SupervisorRequest:
    """A request on its own socket. ``fds``: the descriptors received with its answers."""

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
        """Return the supervisor's next message; add its descriptors to ``fds``. Raises OSError if lost or too late."""
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

    def read_available(self) -> bool:
        """Read available output; return False at its end."""
        chunk = os.read(self.fd, 1 << 20)
        room = self.limit - len(self.data)
        self.data += chunk[:room]
        self.truncated |= len(chunk) > room
        return bool(chunk)


def follow(call: SupervisorRequest, streams: list[Stream], give_up: float) -> dict[str, Any]:
    """Read output until the command's end is reported, and then the remaining output; return the report.

    ``give_up``: the time (monotonic clock) after which a silent supervisor counts as hung. Raises OSError if it is, or
    the connection is lost.
    """
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
                if not open_streams[fd].read_available():
                    poll.unregister(fd)
                    del open_streams[fd]
            elif not ending:
                ending = call.answer(GRACE_S)
                poll.unregister(fd)
                give_up = time.monotonic() + SETTLE_S
        # A child may print forever; the pipes' content at the command's end has been read by now.
        if ending and remaining_s < 0:
            break
    return ending
