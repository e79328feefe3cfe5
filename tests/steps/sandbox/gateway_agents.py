"""Conformance tests of agent programs behind the gateway, for every backend; ``Conformance`` includes them."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from swe_argo.steps.agents.gateway.channel import Gateway
from swe_argo.steps.agents.gateway.frames import Ended, GatewayRequest, Withdrawn
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError
from swe_argo.steps.sandbox.protocol import Sandbox
from tests.steps.agents.gateway.agents import (
    LIMITS,
    assert_calls_answered_once,
    drive,
    echo,
    open_gateway,
    printed,
    requests,
)
from tests.steps.gateway.toolchain import needs_go


class Host(Protocol):
    """The part of ``Lab`` that these tests need."""

    host: str | None
    confines_network: bool

    def create(self) -> Sandbox: ...

    def destroy(self, sandbox: Sandbox) -> None: ...

    def kill(self, sandbox: Sandbox) -> None: ...


@needs_go
class GatewayAgents:
    def test_gateway_passes_requests(self, box: Sandbox) -> None:
        command = """
        ask POST '/v1/messages?beta=true' hello
        for n in 1 2 3 4 5; do ask POST /v1/messages "$(printf %${n}0000s)" | wc -c; done
        basename "$PWD"; read -r line || echo nothing to read; (: </dev/tty) 2>/dev/null || echo no terminal
        echo $WORD >&2; ls -A /tmp | grep swe-argo-gateway; exit 3
        """
        with open_gateway(box, command) as gateway:
            events = drive(gateway)
            assert gateway.poll(1) == []
        first = requests(events)[0]
        assert (first.number, first.method, first.path) == (1, "POST", "/v1/messages?beta=true")
        assert (first.headers["x-word"], first.body) == ("a, b", b"hello")
        assert printed(events) == (
            b"200 <hello>\n10007\n20007\n30007\n40007\n50007\ntestbed\nnothing to read\nno terminal\n"
        )
        assert printed(events, "stderr") == b"it's\n"
        assert events[-1] == Ended(3)

    def test_gateway_ends_all_processes(self, box: Sandbox) -> None:
        beat = "while :; do echo x >>/testbed/beat; sleep 0.05; done"
        begin = (
            f"trap '' TERM; setsid bash -c '(trap \"\" TERM; {beat}) & exit' & until [ -s beat ]; do sleep 0.05; done"
        )
        silence = "wc -c </testbed/beat; sleep 0.4; wc -c </testbed/beat; rm /testbed/beat"
        for ending in ("exit 0", "ask POST /v1/messages begun; sleep 600"):
            with open_gateway(box, f"{begin}; {ending}") as gateway:
                if ending == "exit 0":
                    assert drive(gateway) == [Ended(0)]
                else:
                    assert requests(gateway.poll(60))
                    gateway.kill()
                    gateway.kill()
                    *earlier, ended = drive(gateway)
                    assert ended == Ended(137, killed=True)
                    assert earlier in ([], [Withdrawn(1)])  # whether its connection closes before the gateway has ended
            before, after = box.exec(silence, timeout_s=60).stdout.split()
            assert 0 < int(before) == int(after)

    def test_gateway_asks_each_call_once(self, box: Sandbox) -> None:
        assert_calls_answered_once(box, 40)

    def test_gateway_enforces_limits(self, box: Sandbox) -> None:
        limits = replace(LIMITS, output_bytes=5_000_000, home_bytes=5_000_000)
        for command, over in {
            "yes": "output",
            "mkdir home; tr '\\0' x </dev/zero >home/large": "home",
            "mkfifo terminal; read -r line <terminal": "waiting",
        }.items():
            idle_s = 1.0 if over == "waiting" else 60.0
            with open_gateway(box, command, replace(limits, idle_s=idle_s), home="/testbed/home") as gateway:
                ended = drive(gateway)[-1]
            assert isinstance(ended, Ended)
            assert (ended.exceeded_limit, ended.killed) == (over, False)
            box.exec("rm -rf home terminal", timeout_s=60)

    def test_gateway_hides_key_and_network(
        self, box: Sandbox, lab: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "a-real-key")
        (tmp_path / "key").write_text("a-real-key")
        command = f"""
        cat {tmp_path}/key /proc/[0-9]*/root{tmp_path}/key
        env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'
        grep -hi " [0-9A-F]*:$(printf %04X $PORT) [0-9:]* 0A " /proc/net/tcp /proc/net/tcp6 |
          tr -s ' ' | cut -d ' ' -f 3
        """
        with open_gateway(box, command) as gateway:
            output = printed(drive(gateway)).decode()
        if box.machine.isolation != "none":  # else it is a process of this host, as is said wherever one is asked for
            assert "a-real-key" not in output
        assert "\n0100007F:" in "\n" + output.splitlines()[-1]  # where the gateway listens, and nowhere else
        assert output.count(output.splitlines()[-1][-5:] + "\n") == 1
        if lab.confines_network and lab.host is not None:
            with socket.create_server((lab.host, 0)) as server:
                reach = f"timeout 3 bash -c 'exec 3<>/dev/tcp/{lab.host}/{server.getsockname()[1]}' && echo reached"
                with open_gateway(box, reach) as gateway:
                    assert b"reached" not in printed(drive(gateway))

    def test_killed_machine_fails_the_agent(self, lab: Host) -> None:
        box = lab.create()
        gateway = open_gateway(box, "ask POST /v1/x hello; sleep 600")
        (request,) = requests(gateway.poll(60))
        lab.kill(box)
        with pytest.raises(InfraError) as caught:
            _answer_and_wait(gateway, request)
        assert caught.value.failure_class is FailureClass.SANDBOX_LOST
        lab.destroy(box)


def _answer_and_wait(gateway: Gateway, request: GatewayRequest) -> None:
    gateway.answer(request.number, echo(request))
    while True:
        assert not any(isinstance(event, Ended) for event in gateway.poll(30))
