"""The endpoint's limits, kept over real processes."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from swe_argo.steps.contracts.run_spec import LlmSpec
from swe_argo.steps.errors import InfraError
from swe_argo.steps.models.rate_limits import RunnersGate, UnitShare, Unlimited, open_gate
from swe_argo.steps.settings import settings
from tests.model_server import Answer, model_server, play
from tests.model_server.answers import DROP
from tests.steps.models.model_specs import ISSUE, client

ASK = """
import sys
from swe_argo.steps.models.client import open_model
from tests.steps.models.model_specs import ISSUE, spec
with open_model(spec(sys.argv[1], concurrency=1, requests_per_minute=float(sys.argv[3]))) as model:
    for _ in range(int(sys.argv[2])):
        model.ask(ISSUE)
"""


class Runner:
    """The other side, as a runner keeps it: so many at a time."""

    def __init__(self, path: Path, at_once: int) -> None:
        self.line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.line.bind(str(path))
        self.line.listen(64)
        self.free = threading.Semaphore(at_once)
        self.turns = 0
        self.threads: list[threading.Thread] = []

    def serve(self) -> None:
        while True:
            try:
                line, _ = self.line.accept()
            except OSError:
                return
            self.threads.append(threading.Thread(target=self._one, args=(line,)))
            self.threads[-1].start()

    def _one(self, line: socket.socket) -> None:
        with line, self.free:
            self.turns += 1
            try:
                line.sendall(b"g")
                line.recv(1)  # ends when the client closes, or dies
            except OSError:
                pass


@contextmanager
def runner(path: Path, at_once: int) -> Iterator[Runner]:
    gate = Runner(path, at_once)
    thread = threading.Thread(target=gate.serve)
    thread.start()
    try:
        yield gate
    finally:
        gate.line.shutdown(socket.SHUT_RDWR)
        gate.line.close()
        thread.join()
        for each in gate.threads:
            each.join()


def _asking(url: str, calls: int, rpm: float, env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", ASK, url, str(calls), str(rpm)], env={"PATH": "/bin", **env})


def test_processes_ask_one_after_the_other_where_the_runner_lets_one_through(tmp_path: Path) -> None:
    place = tmp_path / "gate"
    with model_server(play(Answer("x")), latency_s=0.02) as server, runner(place, 1) as gate:
        units = [_asking(server.url, 4, 60, {"SWE_ARGO_GATE": str(place)}) for _ in range(4)]
        assert [unit.wait() for unit in units] == [0] * 4
        assert server.counts.at_once == 1
        assert server.counts.requests == gate.turns == 16


def test_a_process_that_is_killed_gives_its_turn_back(tmp_path: Path) -> None:
    place = tmp_path / "gate"
    with model_server(play(Answer("x", delay_s=30))) as server, runner(place, 1):
        unit = _asking(server.url, 1, 60, {"SWE_ARGO_GATE": str(place)})
        while not server.counts.requests:
            assert unit.poll() is None
            time.sleep(0.02)
        unit.kill()
        unit.wait()
        with RunnersGate(place).turn(10):
            pass


def test_a_turn_that_does_not_come_is_told(tmp_path: Path, environment: pytest.MonkeyPatch) -> None:
    place = tmp_path / "gate"
    environment.setenv("SWE_ARGO_GATE", str(place))
    settings.cache_clear()
    with (
        model_server(play(Answer("x"))) as server,
        runner(place, 1),
        RunnersGate(place).turn(60),
        client(server.url) as model,
    ):
        with pytest.raises(InfraError, match="no turn at the endpoint within 0 s"):
            model.ask(ISSUE, timeout_s=0.2)
        assert server.counts.requests == 0


def test_a_runner_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="gone"), RunnersGate(tmp_path / "none").turn(5):
        raise AssertionError("there is no gate to go through")


def test_a_turn_ends_when_its_request_fails(tmp_path: Path, environment: pytest.MonkeyPatch) -> None:
    place = tmp_path / "gate"
    environment.setenv("SWE_ARGO_GATE", str(place))
    settings.cache_clear()
    with model_server(play(DROP)) as server, runner(place, 1) as gate, client(server.url, num_retries=3) as model:
        with pytest.raises(InfraError):
            model.ask(ISSUE)
        assert gate.turns == server.counts.requests == 4


@pytest.mark.long
def test_units_without_a_runner_keep_their_shares_of_the_requests_a_minute() -> None:
    with model_server(play(Answer("x"))) as server:
        # 480 a minute for 4 units: each asks every half second, together they ask 8 times a second.
        units = [_asking(server.url, 5, 480, {"SWE_ARGO_UNITS": "4"}) for _ in range(4)]
        assert [unit.wait() for unit in units] == [0] * 4
        began = sorted(server.counts.began)
    assert len(began) == 20
    busiest = max(sum(start <= each < start + 1 for each in began) for start in began)
    assert busiest <= 8 + 4  # a unit's spacing is its own: each may have one at either end of a second


def test_a_share_of_less_than_one_call_rests_in_proportion() -> None:
    now, slept = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    def two_calls(concurrency: int, seconds: float, tools_s: float) -> list[float]:
        slept.clear()
        share = UnitShare(5, concurrency, None, sleep, lambda: now[0])
        for _ in range(2):
            with share.turn(60):
                now[0] += seconds
            now[0] += tools_s
        return slept

    assert two_calls(1, seconds=10, tools_s=15) == [pytest.approx(25)]  # four times as long as the call, less the tools
    assert two_calls(1, seconds=10, tools_s=50) == []
    assert two_calls(5, seconds=10, tools_s=0) == []


def test_a_share_that_comes_too_late_is_told() -> None:
    share = UnitShare(units=1000, concurrency=1, requests_per_minute=None)
    with share.turn(60):
        time.sleep(0.05)
    with pytest.raises(InfraError, match="limits are too low"), share.turn(1):
        raise AssertionError("its turn is later")


def test_without_limits_there_is_no_gate(environment: pytest.MonkeyPatch) -> None:
    assert isinstance(open_gate(LlmSpec(concurrency=1)), Unlimited)  # nobody says how many units there are
    environment.setenv("SWE_ARGO_UNITS", "10")
    settings.cache_clear()
    assert isinstance(open_gate(LlmSpec()), Unlimited)
    assert isinstance(open_gate(LlmSpec(requests_per_minute=60)), UnitShare)
