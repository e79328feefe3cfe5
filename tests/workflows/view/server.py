"""A real viewer on a local port, and a plain HTTP client for it."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from swe_argo.steps.host.listening import listen
from swe_argo.steps.store import Store
from swe_argo.workflows.view.app import Viewer


@dataclass(frozen=True)
class Answer:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text, with plain spaces for no-break spaces."""
        return self.body.decode().replace("\u00a0", " ")


@dataclass(frozen=True)
class Address:
    """The address of a viewer."""

    port: int

    @property
    def url(self) -> str:
        """Return the address for a browser."""
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """Send a request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return Answer(response.status, {n.lower(): v for n, v in response.getheaders()}, response.read())
        finally:
            connection.close()


@contextmanager
def viewing(
    store: Store, token: str | None = None, *, loopback: bool = True, patience_s: float = 120
) -> Iterator[Address]:
    """Run a viewer of the store; by default its pages wait for slow reads."""
    with listen("127.0.0.1", 0) as listening:
        app = Viewer(store, patience_s).app(token, loopback=loopback)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.01)
            yield Address(listening.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()
