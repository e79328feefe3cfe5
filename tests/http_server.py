"""The common base of the HTTP servers that tests start on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """A handler that passes requests of every method to ``respond``."""

    def respond(self) -> None:
        """Answer the request; by default 404."""
        self.answer(404)

    def do_GET(self) -> None:
        self.respond()

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def body(self) -> bytes:
        """Return the body of the request, empty if there is none."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status: int, body: bytes | str | Mapping[str, Any] | list[Any] = b"", **headers: str) -> None:
        """Send an answer, JSON for a mapping or list, only headers to HEAD. Header names are like ``Content_Type``."""
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
        """Log nothing: it would be printed among the tests."""


@contextmanager
def serve(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve on a free port and yield the address, ``http://127.0.0.1:1234``."""
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
