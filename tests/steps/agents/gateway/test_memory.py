"""Memory of the gateway, whatever is sent through it, and its behaviour without disk."""

from __future__ import annotations

import hashlib
import random
import shutil
from dataclasses import replace

import pytest

from swe_argo.steps.agents.gateway.frames import (
    Ended,
    GatewayEvent,
    GatewayRequest,
    GatewayResponse,
    Refused,
    Withdrawn,
)
from tests.steps.agents.gateway.agents import LIMITS, drive, echo, open_gateway, printed, requests
from tests.steps.agents.machine import Box
from tests.steps.gateway.toolchain import needs_go

pytestmark = [pytest.mark.slow, needs_go]

MOST_MIB = 20
AT_A_TIME = 16
MANY_BYTES = 8 << 20
ROOMY_BYTES = 3 << 20
"""The gateway has room for AT_A_TIME answers of this size."""
FAST = replace(LIMITS, requests_per_second=1000.0)
# post FILE: send it; print the answer's status and the checksum of its last $last bytes.
TOOLS = r"""
send() {
  exec 9<>/dev/tcp/127.0.0.1/$PORT; printf '%s\r\n' 'POST /v1/x HTTP/1.1' "$@" 'Connection: close' '' >&9; cat >&9
  to=answer-$BASHPID; cat <&9 >$to; head -n 1 $to | cut -d ' ' -f 2; tail -c "${last:-0}" $to | md5sum
}
post() { send "Content-Length: $(wc -c <$1)" <$1; }
peak() { grep VmHWM /proc/$PPID/status; }
"""
AGENTS = {
    "large bodies": """
    truncate -s 16777216 large; post large; echo >>large; tail -c 16777216 large >other; post other
    for n in $(seq 16); do (head -c 1000000 /dev/urandom | base64 -w 0 >body-$n; post body-$n) & done; wait
    """,
    "the largest bodies at once": """
    for n in $(seq 16); do (echo $n >large-$n; truncate -s 16777216 large-$n; post large-$n) & done; wait
    """,
    "headers without end": """
    for n in $(seq 100); do
      exec {fd}<>/dev/tcp/127.0.0.1/$PORT; printf 'POST /v1/x HTTP/1.1\\r\\n' >&$fd
      seq -f 'n%g:' 4000 2>/dev/null | head -c 32000 >&$fd
    done; sleep 1
    """,
    "a trailer without end": """
    { printf '0\\r\\n'; seq -f 'n%g: x' 2000000; echo; } | send 'Transfer-Encoding: chunked'
    """,
    "much printed": "yes | head -c 20000000 >&2; yes | head -c 20000000; sleep 1; echo",
}
"""Agents that have the gateway hold as much of one thing as it can."""


def peak_mib(output: bytes) -> float:
    """Return the gateway's peak memory until its agent asked at the very end."""
    word, number, unit = output.splitlines()[-1].split()
    assert (word, unit) == (b"VmHWM:", b"kB")
    return int(number) / 1024


@pytest.mark.parametrize("agent", AGENTS)
def test_gateway_memory_stays_bounded(box: Box, agent: str) -> None:
    with open_gateway(box.sandbox, f"{TOOLS}\n{AGENTS[agent]}\npeak", FAST) as gateway:
        events = drive(gateway, lambda _: GatewayResponse(200, {}, b"x" * 200_000))
    assert peak_mib(printed(events)) < MOST_MIB
    counts = {"large bodies": 18, "the largest bodies at once": 16, "a trailer without end": 1}
    assert len(requests(events)) == counts.get(agent, 0)


def test_gateway_memory_bounded_on_flood(box: Box) -> None:
    command = """
    trap '' TERM; peak >last; for n in 1 2 3; do yes & yes >&2 & done
    while sleep 0.1; do peak >peak && mv peak last; done
    """
    with open_gateway(box.sandbox, TOOLS + command, replace(LIMITS, output_bytes=1_000_000)) as gateway:
        events = drive(gateway)
    assert isinstance(events[-1], Ended)
    assert events[-1].exceeded_limit == "output"
    assert peak_mib((box.testbed / "last").read_bytes()) < MOST_MIB


def test_large_answers_fit_small_memory(box: Box) -> None:
    noise = random.Random(1)
    bodies = [noise.randbytes(ROOMY_BYTES) for _ in range(AT_A_TIME)]
    waiting: list[GatewayRequest] = []

    def answer(request: GatewayRequest) -> None:
        waiting.append(request)
        if len(waiting) == AT_A_TIME:
            for pending in waiting:
                gateway.answer(pending.number, GatewayResponse(200, {}, bodies[int(pending.body) - 1]))

    command = f"""
    last={ROOMY_BYTES}
    for n in $(seq {AT_A_TIME}); do (echo $n >body-$n; post body-$n >sum-$n) & done; wait
    for n in $(seq {AT_A_TIME}); do cat sum-$n; done; peak
    """
    with open_gateway(box.sandbox, TOOLS + command, FAST) as gateway:
        events = drive(gateway, answer)
    expected = [word for body in bodies for word in (b"200", hashlib.md5(body).hexdigest().encode(), b"-")]
    assert printed(events).split()[:-3] == expected
    assert peak_mib(printed(events)) < MOST_MIB


def test_gateway_keeps_newest_answers(box: Box) -> None:
    command = """
    for n in $(seq 80); do body=$n; raw 'POST /v1/x HTTP/1.1' "Content-Length: ${#n}"; exec 9>&-; done
    ask POST /v1/x mark >mark
    for n in $(seq 80 -1 1); do ask POST /v1/x $n; done
    """
    with open_gateway(box.sandbox, command, replace(FAST, max_concurrent=100)) as gateway:
        received: list[GatewayEvent] = []
        while sum(isinstance(event, Withdrawn) for event in received) < 80 or len(requests(received)) < 81:
            received += gateway.poll(30)
        [mark] = [request for request in requests(received) if request.body == b"mark"]
        abandoned = [request for request in requests(received) if request is not mark]
        for request in sorted(abandoned, key=lambda request: int(request.body)):
            gateway.answer(request.number, GatewayResponse(200, {}, b"first"))
        gateway.answer(mark.number, echo(mark))  # the gateway has taken those before it by then
        events = drive(gateway)
    assert printed(events) == b"200 first\n" * 64 + b"".join(b"200 <%d>\n" % n for n in range(16, 0, -1))
    assert [request.number for request in requests(events)] == list(range(82, 98))


def test_diskless_gateway_returns_503(any_box: Box) -> None:
    if shutil.which("prlimit") is None:
        pytest.skip("no prlimit")

    def answer(request: GatewayRequest) -> GatewayResponse:
        large = GatewayResponse(200, {}, random.Random(1).randbytes(MANY_BYTES))
        return large if request.number == 2 else echo(request)

    command = """
    prlimit --pid $PPID --fsize=0
    ask POST /v1/x "$(printf %1000000s)" | wc -c; truncate -s 16777216 large
    post large; ask POST /v1/x large; ask POST /v1/x large; peak
    """
    with open_gateway(any_box.sandbox, TOOLS + command) as gateway:
        events = drive(gateway, answer)
    whole, refused, _, unanswered, again, *_ = printed(events).splitlines()
    assert (whole, refused, again) == (b"1000007", b"503", b"200 <large>")
    assert unanswered.startswith(b'503 {"error":{"message":"there was no space for the answer","type":"api_error"}')
    assert [request.body for request in requests(events)[1:]] == [b"large", b"large"]
    assert events[-1] == Ended(0)
    assert [event.status for event in events if isinstance(event, Refused)] == [503, 503]
    assert peak_mib(printed(events)) < MOST_MIB
