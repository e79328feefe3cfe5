"""A model that delays its second answer, so that a test can look at a unit at work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.model_server import Answer, Fault, call, model_server, play


@dataclass(frozen=True)
class WaitingModel:
    """``agent``: the flags of a run with this model."""

    agent: list[str]
    go_on: threading.Event


@contextmanager
def waiting_model(command: str) -> Iterator[WaitingModel]:
    """Serve a model that runs ``command``, and ends the work when ``go_on`` is set."""
    script, go_on = play(call("execute_bash", command=command), call("finish", message="done")), threading.Event()

    def wait_at_the_second(request: dict[str, Any]) -> Answer | Fault:
        if any(message.get("role") == "assistant" for message in request["messages"]):
            go_on.wait(300)
        return script(request)

    with model_server(wait_at_the_second) as server:
        agent = ["--agent", "openhands", "--model", "openai/m", "--base-url", server.url, "--use-fn-calling", "true"]
        yield WaitingModel(agent, go_on)
