"""HTTP servers of this machine: what every one that tests stand up has in common."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """Requests of every method come to ``respond``."""

    def respond(self) -> None:
        """Answer the request: nothing is here, unless a server says otherwise."""
        self.answer(404)

    def do_GET(self) -> None:
        self.respond()

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def body(self) -> bytes:
        """The body of the request, empty where there is none."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status: int, body: bytes | str | Mapping[str, Any] | list[Any] = b"", **headers: str) -> None:
        """A whole answer, JSON of a mapping or a list; to HEAD its headers alone, named like ``Content_Type``."""
        all_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, Mapping | list):
            body = json.dumps(body)
            all_headers = {"Content-Type": "application/json"} | all_headers
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(data))} | all_headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: it would be printed among the tests."""


@contextmanager
def serve(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server on a port of its own, ``http://127.0.0.1:1234``; gone at the end."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        # A connection of HTTP/1.0 ends with its answer, which is waited for; another may be kept open by its client.
        server.daemon_threads = handler.protocol_version != "HTTP/1.0"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
