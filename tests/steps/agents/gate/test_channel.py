"""The gate in real sandboxes: an agent that is a bash script makes its requests there by /dev/tcp."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from steps.agents.gate.channel import Gate, choose_port
from steps.agents.gate.events import Ended, GateAnswer, GateEvent, GateRequest, Printed
from steps.agents.gate.limits import GateLimits
from steps.sandbox.protocol import Sandbox
from tests.steps.agents.gate.toolchain import needs_go
from tests.steps.agents.machine import Box

pytestmark = [pytest.mark.slow, needs_go]

LIMITS = GateLimits(allowed=(("POST", "/v1/*"), ("HEAD", "/")))
ASK = r"""
ask() { # ask METHOD PATH BODY: the status and the body of the answer
  exec 9<>/dev/tcp/127.0.0.1/$PORT || return
  printf '%s\r\n' "$1 $2 HTTP/1.1" Host:\ x X-Word:\ a X-Word:\ b Connection:\ close "Content-Length: ${#3}" '' >&9
  printf %s "$3" >&9
  read -r _ status _ <&9
  while read -r line <&9 && [ "$line" != $'\r' ]; do :; done
  echo "$status $(cat <&9)"
  exec 9>&-
}
"""


@pytest.fixture
def box(any_box: Box) -> Sandbox:
    return any_box.sandbox


def open_gate(box: Sandbox, command: str, limits: GateLimits = LIMITS) -> Gate:
    port = choose_port(box)
    return Gate(box, ASK + command, env={"PORT": str(port), "WORD": "it's"}, cwd="/testbed", limits=limits, port=port)


def echo(request: GateRequest) -> GateAnswer:
    return GateAnswer(200, {"content-type": "text/plain"}, b"<" + request.body + b">")


def drive(gate: Gate, answer: Callable[[GateRequest], GateAnswer | None] = echo) -> list[GateEvent]:
    """All events to the end."""
    events: list[GateEvent] = []
    while not events or not isinstance(events[-1], Ended):
        new = gate.poll(30)
        assert new, "nothing for half a minute"
        for event in new:
            if isinstance(event, GateRequest) and (answered := answer(event)) is not None:
                gate.answer(event.number, answered)
        events += new
    return events


def printed(events: list[GateEvent], stream: str = "stdout") -> bytes:
    return b"".join(event.data for event in events if isinstance(event, Printed) and event.stream == stream)


def test_a_request_goes_out_and_its_answer_in(box: Sandbox) -> None:
    with open_gate(box, "ask POST '/v1/messages?beta=true' hello; pwd; echo $WORD >&2; exit 3") as gate:
        events = drive(gate)
    (request,) = (event for event in events if isinstance(event, GateRequest))
    assert (request.number, request.method, request.path) == (1, "POST", "/v1/messages?beta=true")
    assert request.body == b"hello"
    assert request.headers["x-word"] == "a, b"
    assert printed(events).splitlines()[0] == b"200 <hello>"
    assert printed(events).endswith(b"/testbed\n")
    assert printed(events, "stderr") == b"it's\n"
    assert events[-1] == Ended(3)
    assert gate.poll(1) == []
