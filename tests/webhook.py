"""A webhook on this machine: answers what it is told to, one after the other, and keeps what it was sent."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATH = "/services/T000/B000/a-secret"
Answer = tuple[int, dict[str, str]]


@dataclass
class Webhook:
    """``bodies`` and ``times`` (monotonic seconds) of every POST, in order."""

    url: str = ""
    bodies: list[Any] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """Requests that are no POST to PATH."""


@contextmanager
def webhook(answers: Sequence[Answer], delay_s: float = 0.0) -> Iterator[Webhook]:
    """The last answer is given for ever."""
    kept = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if self.path != PATH:
                kept.others.append(f"POST {self.path}")
            kept.times.append(time.monotonic())
            kept.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            code, headers = answers[min(len(kept.bodies), len(answers)) - 1]
            time.sleep(delay_s)
            try:
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")
            except OSError:  # the other side has gone
                return

        def do_GET(self) -> None:
            kept.others.append(f"GET {self.path}")
            self.send_error(404)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    kept.url = f"http://127.0.0.1:{server.server_address[1]}{PATH}"
    try:
        yield kept
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
