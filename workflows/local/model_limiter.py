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
MAX_PATH_BYTES = 100
"""Maximum bytes of a Unix socket path on every system."""
GO = b"."
ADDRESS = "SWE_ARGO_LIMITER"
"""The environment variable with the path of the socket."""


class ModelLimiter:
    """Admits at most ``concurrency`` clients at a time, and one every 60 / ``requests_per_minute`` seconds."""

    def __init__(self, path: Path, concurrency: int | None, requests_per_minute: float | None) -> None:
        self._concurrency = concurrency
        self._pause_s = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._next = 0.0
        self._queue: deque[socket.socket] = deque()
        self._admitted: set[socket.socket] = set()
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # A wake-up pipe: a write to ``_wake_writer`` wakes the serving thread, which then ends.
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._listener.bind(str(path))
        self._listener.listen(WAITING)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="limiter", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Admit no further client and close all connections, waiting ones included."""
        self._wake_writer.send(b".")
        self._thread.join()
        for connection in (*self._queue, *self._admitted, self._listener, self._wake_reader, self._wake_writer):
            connection.close()
        self._selector.close()

    def _serve(self) -> None:
        """Handle connections in the limiter's thread until ``close`` wakes it."""
        while True:
            for selected, _ in self._selector.select(self._wait_s()):
                if selected.fileobj is self._wake_reader:
                    return
                if selected.fileobj is self._listener:
                    self._accept()
                elif isinstance(selected.fileobj, socket.socket):
                    self._handle_readable(selected.fileobj)
            self._admit()

    def _wait_s(self) -> float | None:
        """Return the seconds until the rate limit admits the next client; None if no time limit applies."""
        if not self._queue or self._full:
            return None
        return max(0.0, self._next - time.monotonic())

    @property
    def _full(self) -> bool:
        return self._concurrency is not None and len(self._admitted) >= self._concurrency

    def _accept(self) -> None:
        """Put the next client, if there still is one, at the end of the queue."""
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):  # the client left before it was accepted
            return
        except OSError:  # this process is out of file descriptors: some are freed when clients leave
            time.sleep(0.1)
            return
        client.setblocking(False)
        self._queue.append(client)
        self._selector.register(client, selectors.EVENT_READ)

    def _handle_readable(self, client: socket.socket) -> None:
        """Handle a readable client. Clients send nothing, so this means that it closed the connection."""
        try:
            if client.recv(64):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._forget(client)

    def _admit(self) -> None:
        """Admit waiting clients as far as both limits allow: each is sent the byte that it waits for."""
        while self._queue and not self._full and self._next <= time.monotonic():
            client = self._queue.popleft()
            self._admitted.add(client)
            try:
                client.send(GO)
            except OSError:
                self._forget(client)
                continue
            self._next = time.monotonic() + self._pause_s

    def _forget(self, client: socket.socket) -> None:
        """Close a client's connection, which frees its slot or its place in the queue."""
        self._selector.unregister(client)
        self._admitted.discard(client)
        if client in self._queue:
            self._queue.remove(client)
        client.close()


@contextmanager
def limit_model_calls(spec: RunSpec) -> Iterator[dict[str, str]]:
    """Run the gateway and yield the variables that steps need to use it; empty if the spec sets no limit.

    Raises ConfigError if the path of the temporary folder is too long for a socket.
    """
    llm = spec.llm
    if not agent_of(spec.agent).asks_model or (llm.concurrency is None and llm.requests_per_minute is None):
        yield {}
        return
    folder = folders.private_folder()
    try:
        path = folder / "limiter"
        if len(str(path).encode()) > MAX_PATH_BYTES:
            raise ConfigError(
                f"{folder.parent} is too long for the path of a Unix socket: set TMPDIR to a shorter folder",
                field="llm.concurrency",
            )
        limiter = ModelLimiter(path, llm.concurrency, llm.requests_per_minute)
        try:
            yield {ADDRESS: str(path)}
        finally:
            limiter.close()
    finally:
        removal.remove(folder)
