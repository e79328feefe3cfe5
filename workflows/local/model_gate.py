"""The model gateway: a limiter on model calls, shared by all step processes of a runner.

A client connects to a Unix stream socket and reads one byte before it calls the model. When its connection closes, for
whatever reason, its slot is free again.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.host import folders, removal

WAITING = 1024
"""Backlog of the listening socket."""
LONGEST_PATH = 100
"""Maximum bytes of a Unix socket path on every system."""
GO = b"."
ADDRESS = "SWE_ARGO_GATE"
"""The environment variable with the path of the socket."""


class ModelGate:
    """Admits at most ``concurrency`` clients at a time, and one every 60 / ``requests_per_minute`` seconds."""

    def __init__(self, path: Path, concurrency: int | None, requests_per_minute: float | None) -> None:
        self._most = concurrency
        self._pause_s = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._next = 0.0
        self._queue: deque[socket.socket] = deque()
        self._inside: set[socket.socket] = set()
        self._selector = selectors.DefaultSelector()
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # A wake-up pipe: a write to ``_rope`` wakes the serving thread, which then ends.
        self._bell, self._rope = socket.socketpair()
        self._door.bind(str(path))
        self._door.listen(WAITING)
        self._door.setblocking(False)
        self._selector.register(self._door, selectors.EVENT_READ)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="gate", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Admit no further client and close all connections, waiting ones included."""
        self._rope.send(b".")
        self._thread.join()
        for each in (*self._queue, *self._inside, self._door, self._bell, self._rope):
            each.close()
        self._selector.close()

    def _serve(self) -> None:
        while True:
            for selected, _ in self._selector.select(self._wait_s()):
                if selected.fileobj is self._bell:
                    return
                if selected.fileobj is self._door:
                    self._take()
                elif isinstance(selected.fileobj, socket.socket):
                    self._leave(selected.fileobj)
            self._let_in()

    def _wait_s(self) -> float | None:
        """Return the seconds until the rate limit admits the next client; None if no time limit applies."""
        if not self._queue or self._full:
            return None
        return max(0.0, self._next - time.monotonic())

    @property
    def _full(self) -> bool:
        return self._most is not None and len(self._inside) >= self._most

    def _take(self) -> None:
        try:
            client, _ = self._door.accept()
        except (BlockingIOError, ConnectionAbortedError):  # the client left before it was accepted
            return
        except OSError:  # this process is out of file descriptors: some are freed when clients leave
            time.sleep(0.1)
            return
        client.setblocking(False)
        self._queue.append(client)
        self._selector.register(client, selectors.EVENT_READ)

    def _leave(self, client: socket.socket) -> None:
        """Handle a readable client. Clients send nothing, so this means that it closed the connection."""
        try:
            if client.recv(64):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._forget(client)

    def _let_in(self) -> None:
        while self._queue and not self._full and self._next <= time.monotonic():
            client = self._queue.popleft()
            self._inside.add(client)
            try:
                client.send(GO)
            except OSError:
                self._forget(client)
                continue
            self._next = time.monotonic() + self._pause_s

    def _forget(self, client: socket.socket) -> None:
        self._selector.unregister(client)
        self._inside.discard(client)
        if client in self._queue:
            self._queue.remove(client)
        client.close()


@contextmanager
def gate(spec: RunSpec) -> Iterator[dict[str, str]]:
    """Run the gateway and yield the variables that steps need to use it; empty if the spec sets no limit.

    Raises ConfigError if the path of the temporary folder is too long for a socket.
    """
    llm = spec.llm
    if not agent_of(spec.agent).asks_model or (llm.concurrency is None and llm.requests_per_minute is None):
        yield {}
        return
    folder = folders.private_folder()
    try:
        path = folder / "gate"
        if len(str(path).encode()) > LONGEST_PATH:
            raise ConfigError(
                f"{folder.parent} is too long a path for the socket by which calls are limited; "
                "set TMPDIR to a shorter one",
                field="llm.concurrency",
            )
        door = ModelGate(path, llm.concurrency, llm.requests_per_minute)
        try:
            yield {ADDRESS: str(path)}
        finally:
            door.close()
    finally:
        removal.remove(folder)
