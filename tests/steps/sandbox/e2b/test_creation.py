"""Creation at E2B: its rate, by a clock that moves when somebody sleeps, and refused or unanswered requests."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("e2b", reason="the extra e2b is not installed")

from e2b import RateLimitException

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.sandbox.e2b.backend import E2BBackend
from swe_argo.steps.sandbox.e2b.creation import LONGEST_PAUSE_S, CreationRate, RetryLaterError, request_until_accepted
from swe_argo.steps.sandbox.envd import account
from swe_argo.steps.sandbox.envd.account import Refusals, print_refusals
from swe_argo.steps.sandbox.local import bubblewrap
from tests.steps.sandbox.conformance import says
from tests.steps.sandbox.e2b.lab import E2BLab, laboratory

SPEC = SandboxSpec(backend="e2b")


class Clock:
    """A clock that advances only by sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def read(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def limit(folder: Path, per_second: float, clock: Clock) -> CreationRate:
    return CreationRate(folder / "turns", per_second, clock=clock.read, sleep=clock.sleep)


def take(rate: CreationRate) -> None:
    with rate.turn():
        pass


@pytest.mark.parametrize(("per_second", "in_one_second", "seconds"), [(1.0, 1, 1.0), (5.0, 5, 1.0), (0.5, 1, 2.0)])
def test_creation_rate_limits_arrivals(tmp_path: Path, per_second: float, in_one_second: int, seconds: float) -> None:
    clock, arrivals, chance = Clock(), [], Random(1)

    def make(_: int) -> None:
        with limit(tmp_path, per_second, clock).turn():
            clock.sleep(chance.random())
            arrivals.append(clock.now)
            clock.sleep(chance.random() / 10)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(make, range(64)))
    arrivals.sort()
    assert len(arrivals) == 64
    assert all(later - first >= seconds for first, later in zip(arrivals, arrivals[in_one_second:], strict=False))


def test_creation_is_free_after_a_pause(tmp_path: Path) -> None:
    clock = Clock()
    take(limit(tmp_path, 1.0, clock))
    clock.now += 60
    take(limit(tmp_path, 1.0, clock))
    assert clock.slept == []


def test_killed_creator_frees_its_turn(tmp_path: Path) -> None:
    script = f"""
import pathlib, sys
from swe_argo.steps.sandbox.e2b.creation import CreationRate
rate = CreationRate(pathlib.Path({str(tmp_path / "turns")!r}), 1.0)
with rate.turn():
    print("one", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == b"one\n"
        waiting.kill()
    clock = Clock()
    take(limit(tmp_path, 1.0, clock))
    assert sum(clock.slept) == pytest.approx(1.0)  # after a clock that went back, a full turn


def test_refusal_pauses_all_creators(tmp_path: Path) -> None:
    clock = Clock()
    ours, theirs = limit(tmp_path, 5.0, clock), limit(tmp_path, 5.0, clock)
    ours.refusals.refuse(30.0, "full")
    ours.refusals.refuse(2.0, "full")
    take(theirs)
    assert clock.now == 1030
    refusal = theirs.refusals.latest()
    assert refusal is not None
    assert (refusal.why, refusal.since) == ("full", 1000)
    theirs.refusals.accept()
    assert ours.refusals.latest() is None
    ours.refusals.refuse(10.0**9, "full")
    take(ours)
    assert clock.now == 1030 + LONGEST_PAUSE_S


def test_refusal_expires_unless_repeated(tmp_path: Path) -> None:
    now = [1000.0]
    refusals = Refusals(tmp_path / "refused", 60.0, clock=lambda: now[0])
    for _ in range(2):
        refusals.refuse(0.0, "full")
        now[0] += 50
    latest = refusals.latest()
    assert latest is not None
    assert latest.since == 1000
    now[0] += 20
    assert refusals.latest() is None


def test_watch_reports_a_long_wait_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "PATIENCE_S", 0.0)
    refusals = Refusals(tmp_path / "home" / "refused", 60.0)

    class Turns(threading.Event):
        """A stop event that is set after some turns; each begins with a step of the service."""

        def __init__(self) -> None:
            super().__init__()
            full = "429: the maximum number of concurrent\nE2B sandboxes (20)"
            looks = (lambda: None, lambda: refusals.refuse(1.0, full), lambda: None)
            self.steps = iter((*looks, refusals.accept, lambda: refusals.refuse(1.0, "full"), self.set))

        def wait(self, timeout: float | None = None) -> bool:
            next(self.steps)()
            return self.is_set()

    print_refusals(refusals, "E2B", Turns())
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("note: E2B has had no room for another sandbox for 0 s; waiting: 429: the maximum number")
    assert "full" in second


@pytest.mark.parametrize("text", ["not a number", "nan", "1e12"])
def test_invalid_turn_file_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "turns.0").write_text(text)
    (tmp_path / "turns.refused").write_text(text)
    clock = Clock()
    take(limit(tmp_path, 1.0, clock))
    assert sum(clock.slept) <= 1.0


def test_unwritable_turn_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="SWE_ARGO_HOME"):
        take(CreationRate(tmp_path / "file" / "turns", 1.0))


# -- a creation that is refused or unanswered


class CountedRate(CreationRate):
    """A creation rate whose sleeps take no time and are counted."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        super().__init__(folder / "turns", 1000.0, clock=self.clock.read, sleep=self.clock.sleep)


@pytest.fixture
def rate(tmp_path: Path) -> CountedRate:
    return CountedRate(tmp_path)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Iterator[E2BLab]:
    with laboratory(tmp_path_factory.mktemp("e2b"), checkout) as lab:
        yield lab


@pytest.fixture
def lab(service: E2BLab) -> Iterator[E2BLab]:
    """The service without sandboxes; skipped without bubblewrap."""
    if problem := bubblewrap.probe():
        pytest.skip(problem)
    yield service
    service.server.control.quota = 1000
    service.server.faults.refusal_headers.clear()
    for machine in service.server.machines.list_all():
        service.server.machines.kill(machine.number)


def test_create_waits_for_a_free_place(lab: E2BLab) -> None:
    lab.server.control.quota = 2
    first, _ = lab.make(), lab.make()
    threading.Timer(2.0, lab.destroy, [first]).start()
    assert says(lab.make(), "cat hello.txt") == "hello\n"
    assert lab.server.control.refused_for_quota > 0


def test_many_refusals_are_retried(rate: CountedRate) -> None:
    refusals = iter([RetryLaterError(RateLimitException("full"), 0.0)] * 50)

    def create() -> str:
        if refusal := next(refusals, None):
            raise refusal
        return "created"

    assert request_until_accepted(create, rate) == "created"
    assert rate.clock.now - 1000 >= 100
    assert rate.refusals.latest() is None


def test_lasting_refusal_is_infra_error(lab: E2BLab, rate: CountedRate) -> None:
    def create() -> None:
        raise RetryLaterError(RateLimitException("429: full"), 0.0)

    with pytest.raises(RateLimitException, match="full"):
        request_until_accepted(create, rate, room_s=0.0)
    lab.server.faults.create_statuses.append(429)
    lab.server.faults.refusal_headers["Should-Retry"] = "false"
    with pytest.raises(InfraError, match="reached a limit of the plan") as caught:
        E2BBackend(SPEC, rate).create(lab.request())
    assert caught.value.failure_class is FailureClass.SANDBOX_CREATE


@pytest.mark.parametrize(("status", "after_s"), [(429, 37), (503, 37), (409, 0), (503, 0)])
def test_transient_error_is_retried(lab: E2BLab, rate: CountedRate, status: int, after_s: float) -> None:
    lab.server.faults.create_statuses.append(status)
    if after_s:
        lab.server.faults.refusal_headers["Retry-After"] = str(after_s)
    lab.destroy(E2BBackend(SPEC, rate).create(lab.request()))
    assert not lab.server.faults.create_statuses
    assert not after_s or rate.clock.now - 1000 == pytest.approx(after_s, abs=0.1)


def test_lost_answer_makes_one_sandbox(lab: E2BLab) -> None:
    lab.server.faults.lost_create_answers = 1
    box = lab.make()
    assert [machine.number for machine in lab.server.machines.list_all()] == [box.transport.sandbox_id]


def test_unanswered_sandbox_is_removed(lab: E2BLab, rate: CountedRate) -> None:
    lab.server.faults.lost_create_answers = 100
    with pytest.raises(InfraError, match="does not answer"):
        E2BBackend(SPEC, rate).create(lab.request())
    lab.server.faults.lost_create_answers = 0
    assert lab.server.machines.list_all() == []


def test_refusal_after_loss_cleans_up(lab: E2BLab, rate: CountedRate) -> None:
    rate.sleep = lambda _: lab.server.faults.create_statuses.append(400)
    lab.server.faults.lost_create_answers = 1
    with pytest.raises(ConfigError, match="refused to create"):
        E2BBackend(SPEC, rate).create(lab.request())
    assert lab.server.machines.list_all() == []


def test_exit_at_create_leaves_nothing(lab: E2BLab, rate: CountedRate, tmp_path: Path) -> None:
    class Exiting(Refusals):
        def accept(self) -> None:
            raise SystemExit(143)

    rate.refusals = Exiting(tmp_path / "refused", 60.0)
    with pytest.raises(SystemExit):
        E2BBackend(SPEC, rate).create(lab.request())
    assert lab.server.machines.list_all() == []
