"""A server of sandboxes that run envd: one address for their control plane, by whoever speaks for it, and for them."""

from __future__ import annotations

import socket
import threading
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self, cast

from e2b.envd.client_shared import ENVD_JSON_CODEC
from e2b.envd.process.process_connect import ProcessWSGIApplication
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

from tests.steps.sandbox.envd.faults import LineFaults
from tests.steps.sandbox.envd.machines import Machines
from tests.steps.sandbox.envd.processes import Processes, answer_files, gone


class DropConnection(Exception):  # noqa: N818
    """The answer does not arrive."""


class _Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *_args: Any, **_options: Any) -> None:
        """Nothing."""

    def log_error(self, *_args: Any) -> None:
        """Nothing."""


class EnvdServer:
    """Its machines are ended with it."""

    def __init__(self, machines: Machines, faults: LineFaults, host: str = "127.0.0.1", port: int = 0) -> None:
        self.machines = machines
        self.writes: list[int] = []
        """The bytes of each request by which a file was written into a machine."""
        self._line = threading.local()
        self.processes = Processes(self.machines, faults, self._drop_connection)
        self._processes = ProcessWSGIApplication(self.processes, codecs=[ENVD_JSON_CODEC])
        self._server = make_server(host, port, self._answer, threaded=True, request_handler=_Handler)
        self.address = f"http://{host}:{self._server.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    @abstractmethod
    def variables(self) -> dict[str, str]:
        """By which it is found, of the environment."""

    @abstractmethod
    def answer_control(self, request: Request) -> Response:
        """A request of the control plane; may raise DropConnection."""

    @contextmanager
    def running(self) -> Iterator[Self]:
        self._thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self.machines.close()
            self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = Request(environ)
        self._line.socket = environ["werkzeug.socket"]
        try:
            if number := request.headers.get("E2b-Sandbox-Id"):
                return self.answer_envd(request, number, environ, start_response)
            return self.answer_control(request)(environ, start_response)
        except DropConnection:
            self._drop_connection()
            return []

    def _drop_connection(self) -> None:
        """End the connection of the request that this thread answers."""
        with suppress(OSError):
            self._line.socket.shutdown(socket.SHUT_RDWR)

    def answer_envd(
        self, request: Request, number: str, environ: dict[str, Any], start_response: Any
    ) -> Iterable[bytes]:
        machine = self.machines.find(number)
        if machine is None:
            return gone(number)(environ, start_response)
        if not machine.takes_token(request.headers.get("X-Access-Token", "")):
            return Response(status=401)(environ, start_response)
        if request.path == "/health":
            return Response(status=204)(environ, start_response)
        if request.path == "/files":
            if request.method == "POST":
                self.writes.append(request.content_length or 0)
            return answer_files(request, machine)(environ, start_response)
        return cast("Iterable[bytes]", self._processes(environ, start_response))
