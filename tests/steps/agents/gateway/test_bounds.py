"""What ends an agent beside its calls: that it prints much, fills HOME, does nothing, forks without end."""

from __future__ import annotations

import secrets
from dataclasses import replace

import pytest

from swe_argo.steps.agents.gateway.events import Ended, GatewayRequest, GatewayResponse, Printed
from swe_argo.steps.sandbox.protocol import Sandbox
from tests.long_params import long_unless
from tests.steps.agents.gateway.agents import LIMITS, drive, echo, open_gateway, printed
from tests.steps.agents.gateway.toolchain import needs_go
from tests.steps.agents.machine import Box

pytestmark = [pytest.mark.slow, needs_go]


long_in_bubblewrap = pytest.mark.parametrize("any_box", long_unless(("host",), ("host", "bubblewrap")), indirect=True)


@pytest.fixture
def sandbox(any_box: Box) -> Sandbox:
    return any_box.sandbox


def test_gateway_enforces_output_limit(sandbox: Sandbox) -> None:
    command = "echo first; yes 0123456789abcde | head -c 1000000000; touch printed"
    with open_gateway(sandbox, command, replace(LIMITS, output_bytes=20_000_000)) as gateway:
        events = drive(gateway)
    assert isinstance(events[-1], Ended)
    assert (events[-1].over, events[-1].killed) == ("output", False)
    assert printed(events).startswith(b"first\n0123456789abcde\n")
    assert sum(len(event.data) for event in events if isinstance(event, Printed)) <= LIMITS.printed_bytes
    assert sandbox.exec("ls printed", timeout_s=20).exit_code != 0


def test_gateway_enforces_home_limit(sandbox: Sandbox) -> None:
    limits = replace(LIMITS, home_bytes=50_000_000)
    command = """
    mkdir -p home/a/b
    truncate -s 10G home/sparse; head -c 20000000 /dev/zero >home/a/one
    for n in 1 2 3 4 5; do ln home/a/one home/a/b/two-$n; done; ln -s / home/root
    sleep 3; ask POST /v1/x "has $(du -s home | cut -f 1)"; tr '\\0' x </dev/zero >home/a/b/three
    """
    with open_gateway(sandbox, command, limits, home="/testbed/home") as gateway:
        events = drive(gateway)
    assert isinstance(events[-1], Ended)
    assert events[-1].over == "home"
    assert printed(events).startswith(b"200 <has ")


@long_in_bubblewrap
def test_gateway_ends_only_idle_agents(sandbox: Sandbox) -> None:
    limits = replace(LIMITS, idle_s=5.0)
    answered: list[GatewayRequest] = []

    def answer(request: GatewayRequest) -> GatewayResponse | None:
        answered.append(request)
        assert gateway.poll(7.0) == []
        return echo(request)

    # Somebody who computes, or prints, is at work.
    command = """
    ask POST /v1/x hello; end=$((SECONDS + 7)); while [ $SECONDS -lt $end ]; do :; done
    for n in 1 2 3 4; do sleep 2; echo $n; done
    mkfifo terminal; read -r line <terminal
    """
    with open_gateway(sandbox, command, limits) as gateway:
        events = drive(gateway, answer)
    assert printed(events) == b"200 <hello>\n1\n2\n3\n4\n"
    assert len(answered) == 1
    assert isinstance(events[-1], Ended)
    assert (events[-1].over, events[-1].killed) == ("waiting", False)


@long_in_bubblewrap
def test_gateway_ends_fork_bombs(sandbox: Sandbox) -> None:
    # Each has a session of its own, forks and ends: none is below the agent any more, and none stays long. Where there
    # are many it forks once, so that they stay as many and leave a machine to the tests beside this one.
    name = f"bomb-{secrets.token_hex(4)}"  # a host may have those of other tests
    bomb = f"""bash -c 'echo "[ -e stop ] || {{ setsid bash {name} &
      if [ \\$(ls /proc | grep -c ^[0-9]) -gt 100 ]; then sleep 0.02; else setsid bash {name} & fi }}" >{name}'
      for n in 1 2 3 4 5 6 7 8; do setsid bash {name} & done; until [ $(ls /proc | grep -c ^[0-9]) -gt 40 ]
      do sleep 0.05; done; echo enough"""
    try:
        with open_gateway(sandbox, bomb) as gateway:
            events = drive(gateway)
        assert events[-1] == Ended(0)
        count = f"grep -lsaz '^{name}$' /proc/[0-9]*/cmdline | wc -l"
        assert sandbox.exec(f"{count}; sleep 0.5; {count}", timeout_s=30).stdout.split() == [b"0", b"0"]
    finally:
        sandbox.write("/testbed/stop", b"")
