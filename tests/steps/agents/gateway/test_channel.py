"""The gateway in sandboxes of this machine; tests/steps/sandbox/gateway_agents.py has what holds on every backend."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from dataclasses import replace

import pytest

from swe_argo.steps.agents.gateway.channel import Gateway
from swe_argo.steps.agents.gateway.frames import (
    Ended,
    GatewayEvent,
    GatewayRequest,
    GatewayResponse,
    Printed,
    Refused,
    Withdrawn,
)
from swe_argo.steps.sandbox.protocol import JobProgress, Sandbox, StartedJob
from swe_argo.steps.sandbox.wrapper import SandboxWrapper, start_job
from tests.long_params import long_unless
from tests.steps.agents.gateway.agents import LIMITS, drive, echo, open_gateway, printed, requests
from tests.steps.agents.machine import Box
from tests.steps.gateway.toolchain import needs_go

pytestmark = [pytest.mark.slow, needs_go]
long_in_bubblewrap = pytest.mark.parametrize("any_box", long_unless(("host",), ("host", "bubblewrap")), indirect=True)


@pytest.fixture
def sandbox(any_box: Box) -> Sandbox:
    return any_box.sandbox


def test_gateway_refuses_bad_requests(box: Box) -> None:
    limits = replace(LIMITS, body_bytes=1000, headers=5, header_bytes=2000, requests_per_second=1000.0)
    command = """
    ask POST /v2/x hello; ask GET /v1/x; ask POST /v1/%2e%2e/x/../y ok; ask DELETE / ''
    ask POST /v1/x "$(printf %2000s)"
    body=; raw 'POST /v1/x HTTP/1.1' a:\\ 1 b:\\ 1 c:\\ 1 d:\\ 1 e:\\ 1 f:\\ 1; answer
    raw 'POST /v1/x HTTP/1.1' "a: $(printf %3000s | tr ' ' x)"; answer
    raw 'nonsense'; answer
    raw 'POST /v1/x HTTP/1.1' 'Content-Length: -5'; answer
    raw 'POST /v1/x HTTP/1.1' 'Transfer-Encoding: gzip'; answer
    """
    with open_gateway(box.sandbox, command, limits) as gateway:
        events = drive(gateway)
    statuses = [line.split()[0] for line in printed(events).splitlines()]
    assert statuses == [b"404", b"404", b"200", b"404", b"413", b"431", b"431", b"400", b"400", b"400"]
    assert [request.path for request in requests(events)] == ["/v1/%2e%2e/x/../y"]
    first = json.loads(printed(events).splitlines()[0][4:])
    assert first["error"] == {"type": "not_found_error", "message": "POST /v2/x is not served here"}
    assert next(event for event in events if isinstance(event, Refused)) == Refused(
        method="POST", path="/v2/x", status=404
    )
    assert events[-1] == Ended(0)
    refused = Counter(event.status for event in events if isinstance(event, Refused))
    assert refused == {404: 3, 413: 1, 431: 2, 400: 3}


def test_retry_gets_answer_after_hang_up(box: Box) -> None:
    command = """
    body=same; raw 'POST /v1/x HTTP/1.1' 'Content-Length: 4'; exec 9>&-
    until [ -e gone ]; do sleep 0.05; done
    ask POST /v1/x same; ask POST /v1/x same
    """
    with open_gateway(box.sandbox, command) as gateway:
        first, *more = gateway.poll(30)
        assert isinstance(first, GatewayRequest)
        assert more or gateway.poll(30) == [Withdrawn(1)]
        box.sandbox.write("/testbed/gone", b"")
        assert gateway.poll(1.0) == []
        gateway.answer(first.number, GatewayResponse(200, {}, b"the first"))
        events = drive(gateway)
    assert printed(events) == b"200 the first\n200 <same>\n"
    assert [request.number for request in requests(events)] == [2]


class Counting(SandboxWrapper):
    """Counts what its started jobs print."""

    def __init__(self, inner: Sandbox) -> None:
        super().__init__(inner)
        self.bytes = 0

    def start(self, command: str, **options: object) -> StartedJob:
        job, wrapper = start_job(self.inner, command, **options), self  # type: ignore[arg-type]

        class Counted:
            send, close_input, interrupt = job.send, job.close_input, job.interrupt

            def poll(self, **options: object) -> JobProgress:
                progress = job.poll(**options)  # type: ignore[arg-type]
                wrapper.bytes += len(progress.output)
                return progress

        return Counted()


def test_gateway_keeps_both_output_ends(box: Box) -> None:
    with open_gateway(box.sandbox, "seq 1000000; echo last", replace(LIMITS, printed_bytes=100_000)) as gateway:
        events = drive(gateway)
    pieces = [event for event in events if isinstance(event, Printed)]
    text = "".join(f"{n}\n" for n in range(1, 1_000_001)).encode() + b"last\n"
    assert b"".join(piece.data for piece in pieces[:-1]) == text[:50_000]
    assert pieces[-1].data == text[-50_000:]
    assert pieces[-1].skipped == len(text) - 100_000
    assert events[-1] == Ended(0)


def test_gateway_reports_agent_tampering(sandbox: Sandbox) -> None:
    with open_gateway(sandbox, "trap '' TERM; kill -TERM 0; echo lives") as gateway:
        assert printed(drive(gateway)) == b"lives\n"
    with open_gateway(sandbox, "kill -9 $PPID; sleep 600") as gateway:
        assert drive(gateway) == [Ended(None)]
    for line in ('{"listening": 1, "x": 2}', '{"request": {}}', "nonsense", '{"ended": {"exit_code": "0"}}'):
        with open_gateway(sandbox, f"echo '{line}' >/proc/$PPID/fd/1; sleep 600") as gateway:
            (ended,) = drive(gateway)
            assert isinstance(ended, Ended)
            assert ended.forged


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
    assert (events[-1].exceeded_limit, events[-1].killed) == ("waiting", False)


@long_in_bubblewrap
def test_gateway_ends_fork_bombs(sandbox: Sandbox) -> None:
    # Each process has a session of its own, forks and ends, so none stays below the agent. On a host with many
    # processes it forks once, slower than the gateway scans /proc on a busy machine.
    name = f"bomb-{secrets.token_hex(4)}"  # a host may have those of other tests
    bomb = f"""bash -c 'echo "[ -e stop ] || {{ setsid bash {name} &
      if [ \\$(ls /proc | grep -c ^[0-9]) -gt 100 ]; then sleep 0.2; else setsid bash {name} & fi }}" >{name}'
      for n in 1 2 3 4 5 6 7 8; do setsid bash {name} & done; until [ $(ls /proc | grep -c ^[0-9]) -gt 40 ]
      do sleep 0.05; done; echo enough"""
    try:
        with open_gateway(sandbox, bomb) as gateway:
            events = drive(gateway)
        assert events[-1] == Ended(0)
        count = f"grep -lsaz '^{name}$' /proc/[0-9]*/cmdline | wc -l"
        none_left = f"until [ $({count}) = 0 ]; do sleep 0.2; done; sleep 0.5; {count}"  # a busy machine reaps late
        assert sandbox.exec(none_left, timeout_s=60).stdout == b"0\n"
    finally:
        sandbox.write("/testbed/stop", b"")


def test_gateway_answers_in_any_order(box: Box) -> None:
    command = """
    for n in 1 2; do (ask POST /v1/wait $n >out-$n) & done
    until [ -e ready ]; do sleep 0.05; done
    ask POST /v1/wait 3; touch refused; wait; cat out-*
    """
    waiting: list[GatewayRequest] = []
    with open_gateway(box.sandbox, command, replace(LIMITS, max_concurrent=2)) as gateway:
        while len(waiting) < 2:
            waiting += requests(gateway.poll(30))
        box.sandbox.write("/testbed/ready", b"")
        events: list[GatewayEvent] = []
        while not any(isinstance(event, Refused) for event in events):
            events += gateway.poll(30)
        assert [event for event in events if not isinstance(event, Printed)] == [
            Refused(method="POST", path="/v1/wait", status=429)
        ]
        for request in reversed(waiting):
            gateway.answer(request.number, echo(request))
            gateway.answer(request.number, GatewayResponse(500, {}, b"not twice"))
        events += drive(gateway)
    assert b"more than 2 requests" in printed(events).splitlines()[0]
    assert printed(events).endswith(b"\n200 <1>\n200 <2>\n")
    hasty = "for n in $(seq 30); do ask POST /v1/x; done | sort | cut -c 1-3 | uniq -c"
    with open_gateway(box.sandbox, hasty, replace(LIMITS, requests_per_second=0.001)) as gateway:
        assert printed(drive(gateway)).split() == [b"30", b"429"]


def test_gateway_supports_http_features(box: Box) -> None:
    command = r"""
    body=$'5\r\nhello\r\n7;x=y\r\n world!\r\n0\r\n\r\n'
    raw 'POST /v1/chunks HTTP/1.1' 'Transfer-Encoding: chunked'; answer
    body=again
    printf '%s\r\n' 'POST /v1/kept HTTP/1.1' 'content-length: 5' '' >&9; printf again >&9; answer
    printf '%s\r\n' 'POST /v1/waits HTTP/1.1' 'Content-Length: 4' 'Expect: 100-continue' '' >&9
    read -r line <&9; echo "${line%?}"; read -r line <&9; printf late >&9; answer
    printf '%s\r\n' 'HEAD / HTTP/1.1' '' 'POST /v1/next HTTP/1.1' 'Content-Length: 0' '' >&9
    read -r line <&9; until [ "$line" = $'\r' ]; do read -r line <&9; done; answer
    """
    with open_gateway(box.sandbox, command) as gateway:
        events = drive(gateway)
    assert printed(events) == b"200 <hello world!>\n200 <again>\nHTTP/1.1 100 Continue\n200 <late>\n200 <>\n"
    lines = [f"{request.method} {request.path}" for request in requests(events)]
    assert lines == ["POST /v1/chunks", "POST /v1/kept", "POST /v1/waits", "HEAD /", "POST /v1/next"]


def test_gateway_sends_body_differences(box: Box) -> None:
    # Digits at random, which cannot be compressed by more than half; half of what changes is in the middle.
    command = """
    noise() { od -An -N $1 -tx1 /dev/urandom | tr -d ' \\n'; }
    start=$(noise 40000); end=$(noise 20000); talk=
    for n in $(seq 12); do talk=$talk$(noise 500); ask POST /v1/x "$start$talk$end" | md5sum
      printf '<%s>' "$start$talk$end" | { printf '200 '; cat; echo; } | md5sum; done
    """
    counting = Counting(box.sandbox)
    with open_gateway(counting, command) as gateway:
        events = drive(gateway)
    lines = printed(events).split(b"  -\n")[:-1]
    assert len(lines) == 24
    assert lines[::2] == lines[1::2]
    whole = sum(len(request.body) for request in requests(events))
    assert whole > 1_400_000
    assert counting.bytes < whole / 9


def test_gateway_restores_changed_bodies(box: Box) -> None:
    command = """
    body=$(head -c 60000 /dev/urandom | base64 -w 0 | head -c 65537)
    for at in 0 1 32767 32768 65536 65537; do
      for other in "${body:0:at}.${body:at+1}" "${body:0:at}.${body:at}" "${body:0:at}" "${body:at}" "$body$body"; do
        [ "$(ask POST /v1/x "$other")" = "200 <$other>" ] && echo same; ask POST /v1/x "$body" | wc -c
      done
    done
    """
    with open_gateway(box.sandbox, command, replace(LIMITS, requests_per_second=1000.0)) as gateway:
        events = drive(gateway)
    assert printed(events) == b"same\n65544\n" * 30


def test_gateway_reports_port_in_use(box: Box) -> None:
    with open_gateway(box.sandbox, "echo $PORT; sleep 600") as gateway:
        port = int(printed(gateway.poll(30)))
        with Gateway(box.sandbox, "echo never", env={}, cwd="/testbed", limits=LIMITS, port=port) as second:
            (ended,) = drive(second)
    assert isinstance(ended, Ended)
    assert "address already in use" in ended.failure


def test_gateway_counts_home_once(box: Box) -> None:
    """Holes, hard links and links to other folders take no room."""
    command = """
    mkdir -p home/a/b
    truncate -s 10G home/sparse; head -c 20000000 /dev/zero >home/a/one
    for n in 1 2 3 4 5; do ln home/a/one home/a/b/two-$n; done; ln -s / home/root
    sleep 3; ask POST /v1/x "has $(du -s home | cut -f 1)"; tr '\\0' x </dev/zero >home/a/b/three
    """
    limits = replace(LIMITS, home_bytes=50_000_000)
    with open_gateway(box.sandbox, command, limits, home="/testbed/home") as gateway:
        events = drive(gateway)
    assert isinstance(events[-1], Ended)
    assert events[-1].exceeded_limit == "home"
    assert printed(events).startswith(b"200 <has ")
