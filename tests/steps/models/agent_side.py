"""The agent's side of a Forwarder: an HTTP server as it listens in a sandbox, for the real clients of the protocols."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from swe_argo.steps.contracts.wire_protocol import WireProtocol
from swe_argo.steps.models.forwarding import Forwarder, open_forwarder
from swe_argo.steps.models.program_answers import Forwarded
from tests.http_server import Handler, serve
from tests.steps.models.model_specs import spec


@contextmanager
def forwarding(
    url: str, *speaks: WireProtocol, **chosen_spec: object
) -> Iterator[tuple[str, Forwarder, list[Forwarded]]]:
    """Where an agent asks (without ``/v1``), what answers it, and what it was answered so far."""
    answers: list[Forwarded] = []

    class Agent(Handler):
        def respond(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            forwarded = forwarder.answer(self.command, self.path, headers, self.body(), timeout_s=60)
            answers.append(forwarded)
            headers_by_name = {name.replace("-", "_"): value for name, value in forwarded.headers.items()}
            self.answer(forwarded.status, forwarded.body, **headers_by_name)

    chosen = spec(url, **{"temperature": None, **chosen_spec})  # type: ignore[arg-type]
    with open_forwarder(chosen, speaks or (WireProtocol.CHAT,), first_wait_s=0.01) as forwarder, serve(Agent) as at:
        yield at, forwarder, answers
