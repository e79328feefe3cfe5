"""A webhook on this machine that gives scripted answers and keeps what it received."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.http_server import Handler, serve

PATH = "/services/T000/B000/a-secret"
Answer = tuple[int, dict[str, str]]


@dataclass
class Webhook:
    """``bodies`` and ``times`` (monotonic seconds) of every POST, in order."""

    url: str = ""
    bodies: list[Any] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """Requests other than POST to PATH."""


@contextmanager
def webhook(answers: Sequence[Answer], delay_s: float = 0.0) -> Iterator[Webhook]:
    """Serve a webhook; the last answer is repeated."""
    received = Webhook()

    class Webhooks(Handler):
        def respond(self) -> None:
            if (self.command, self.path) != ("POST", PATH):
                received.others.append(f"{self.command} {self.path}")
                return self.answer(404)
            received.times.append(time.monotonic())
            received.bodies.append(json.loads(self.body()))
            code, headers = answers[min(len(received.bodies), len(answers)) - 1]
            time.sleep(delay_s)
            with suppress(OSError):  # the other side has gone
                self.answer(code, "ok", **headers)
            return None

    with serve(Webhooks) as address:
        received.url = f"{address}{PATH}"
        yield received
