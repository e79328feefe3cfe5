"""Sandboxes that the service does not make at once: what is waited for, and for how long, and what is left of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("e2b", reason="the extra e2b is not installed")

from e2b import RateLimitException

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.sandbox.e2b.backend import E2BBackend
from swe_argo.steps.sandbox.e2b.creation import RetryLaterError, insist
from swe_argo.steps.sandbox.e2b.creation_rate import CreationRate
from swe_argo.steps.sandbox.e2b.hooks import run_hooks
from swe_argo.steps.sandbox.e2b.orphans import e2b_sandboxes
from swe_argo.steps.sandbox.envd.refusals import Refusals
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.sandbox.protocol import SandboxRequest
from tests.steps.sandbox.conformance import says
from tests.steps.sandbox.e2b.lab import E2BLab
from tests.steps.sandbox.e2b.limits import Limits
from tests.steps.sandbox.e2b.test_creation_rate import Clock
from tests.steps.sandbox.envd.lab import IMAGE

pytestmark = pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe()))
SPEC = SandboxSpec(backend="e2b")


class HurriedRate(CreationRate):
    """Its sleeps take no time and are counted."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.folder = folder
        super().__init__(folder / "turns", 1000.0, clock=self.clock.read, sleep=self.clock.sleep)


@pytest.fixture
def rate(tmp_path: Path) -> HurriedRate:
    return HurriedRate(tmp_path)


@pytest.fixture
def limits(lab: E2BLab) -> Iterator[Limits]:
    """A plan of two sandboxes at a time."""
    lab.server.control.limits, before = Limits(concurrent=2), lab.server.control.limits
    for machine in lab.server.machines.list_all():
        lab.server.machines.kill(machine.number)
    yield lab.server.control.limits
    lab.server.control.limits = before
    lab.server.faults.refusal_headers.clear()


def request(name: str, **options: object) -> SandboxRequest:
    return SandboxRequest(name, IMAGE, 60, network=False, **options)  # type: ignore[arg-type]


def test_create_waits_for_a_free_place(lab: E2BLab, limits: Limits) -> None:
    first, _ = lab.make(), lab.make()
    ender = threading.Timer(3.0, lab.destroy, [first])
    ender.start()
    assert says(lab.make(), "cat hello.txt") == "hello\n"
    assert limits.refused["concurrency"] >= 1
    assert limits.most_running == 2


def test_many_refusals_are_retried(rate: HurriedRate) -> None:
    refusals = iter([RetryLaterError(RateLimitException("full"), 0.0)] * 50)

    def ask() -> str:
        if refusal := next(refusals, None):
            raise refusal
        return "made"

    assert insist(ask, rate) == "made"
    assert rate.clock.now - 1000 >= 100
    assert rate.refusals.latest() is None


def test_lasting_refusal_is_infra_error(lab: E2BLab, limits: Limits, rate: HurriedRate) -> None:
    for _ in range(2):
        lab.make()

    def ask() -> None:
        raise RetryLaterError(RateLimitException("429: full"), 0.0)

    with pytest.raises(RateLimitException, match="full"):
        insist(ask, rate, room_s=0.0)
    lab.server.faults.create_statuses.append(429)
    lab.server.faults.refusal_headers["Should-Retry"] = "false"
    with pytest.raises(InfraError, match="reached a limit of the plan") as caught:
        E2BBackend(SPEC, rate).create(request("sb-test-hard"))
    assert caught.value.failure_class is FailureClass.SANDBOX_CREATE


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_obeyed(lab: E2BLab, limits: Limits, rate: HurriedRate, status: int) -> None:
    lab.server.faults.create_statuses.append(status)
    lab.server.faults.refusal_headers["Retry-After"] = "37"
    lab.backend.destroy(E2BBackend(SPEC, rate).create(request("sb-test-later")))
    assert rate.clock.now - 1000 == pytest.approx(37, abs=0.1)


def test_conflicting_create_is_retried(lab: E2BLab, limits: Limits, rate: HurriedRate) -> None:
    lab.server.faults.create_statuses.append(409)
    box = E2BBackend(SPEC, rate).create(request("sb-test-conflict"))
    lab.backend.destroy(box)


def test_unanswered_sandbox_is_removed(lab: E2BLab, limits: Limits, rate: HurriedRate) -> None:
    """All answers are lost: there is a sandbox, and nobody has its id."""
    lab.server.faults.lost_create_answers = 100
    with pytest.raises(InfraError, match="does not answer"):
        E2BBackend(SPEC, rate).create(request("sb-test-nobodys"))
    lab.server.faults.lost_create_answers = 0
    assert lab.server.machines.list_all() == []


def test_refusal_after_loss_cleans_up(lab: E2BLab, limits: Limits, rate: HurriedRate) -> None:
    class Refused(HurriedRate):
        def sleep_and_refuse(self, seconds: float) -> None:
            lab.server.faults.create_statuses.append(400)

    refused = Refused(rate.folder)
    refused.sleep = refused.sleep_and_refuse
    lab.server.faults.lost_create_answers = 1
    with pytest.raises(ConfigError, match="refused to create"):
        E2BBackend(SPEC, refused).create(request("sb-test-refused"))
    assert lab.server.machines.list_all() == []


def test_exit_at_create_leaves_nothing(lab: E2BLab, limits: Limits, tmp_path: Path) -> None:
    class Ended(Refusals):
        def accept(self) -> None:
            raise SystemExit(143)

    rate = CreationRate(tmp_path / "turns", 1000.0)
    rate.refusals = Ended(tmp_path / "refused", 60.0)
    with pytest.raises(SystemExit):
        E2BBackend(SPEC, rate).create(request("sb-test-ended"))
    assert lab.server.machines.list_all() == []


def test_run_removes_orphans_twice(lab: E2BLab, limits: Limits) -> None:
    def leave() -> None:
        box = lab.make()
        machine = lab.server.machines.find(box.transport.sandbox_id)
        assert machine is not None
        machine.metadata["owner"] = f"{machine.metadata['owner'].partition(':')[0]}:999999999:1"

    leave()
    with run_hooks(SPEC, None) as hooks:  # type: ignore[arg-type]
        assert lab.server.machines.list_all() == []
        assert hooks.can_create()
        leave()
        hooks.remove_remains(None)  # type: ignore[arg-type]
        assert lab.server.machines.list_all() == []
        leave()
    assert e2b_sandboxes().find_orphans() == {}
    assert lab.server.machines.list_all() == []


def test_expired_token_is_replaced(lab: E2BLab, limits: Limits) -> None:
    box = lab.make()
    machine = lab.server.machines.find(box.transport.sandbox_id)
    assert machine is not None
    machine.token = "another"
    assert says(box, "cat hello.txt") == "hello\n"
    assert machine.ends - time.time() > 60


def test_lasting_refusal_is_exec_failure(lab: E2BLab, limits: Limits, monkeypatch: pytest.MonkeyPatch) -> None:
    box = lab.make()
    machine = lab.server.machines.find(box.transport.sandbox_id)
    assert machine is not None
    monkeypatch.setattr(type(machine), "takes_token", lambda *_: False)
    with pytest.raises(InfraError, match="refused the token") as caught:
        box.exec("true", timeout_s=10)
    assert caught.value.failure_class is FailureClass.EXEC
