"""Which execs that failed are offered again, and for how long."""

from __future__ import annotations

import pytest

pytest.importorskip("kubernetes")

from swe_argo.steps.kube.client import RetryPolicy
from swe_argo.steps.sandbox.kubernetes import pod
from swe_argo.steps.sandbox.kubernetes.exec import ExecRefused

NO_SHELL = ExecRefused(500, 'OCI runtime exec failed: exec failed: exec: "/bin/sh": no such file or directory')
NO_RIGHT = ExecRefused(403, 'pods "sb" is forbidden: User "runner" cannot get resource "pods/exec" in API group ""')
AWAY = ConnectionError("exec lost")


def offers(monkeypatch: pytest.MonkeyPatch, *errors: Exception, last: Exception) -> int:
    """How often a script is offered whose execs fail so, within a patience of 100 s of a clock that counts offers."""
    clock, offer_times = [0.0], []
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)

    def once() -> None:
        clock[0] += 1
        offer_times.append(clock[0])
        raise errors[len(offer_times) - 1] if len(offer_times) <= len(errors) else last

    patience = RetryPolicy(total_s=100, rights_s=20)
    with pytest.raises(type(last)):
        patience.retrying(pod._IsTransient(patience))(once)
    return len(offer_times)


def test_shell_is_retried_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offers(monkeypatch, last=NO_SHELL) == pod.REFUSED_S + 1
    assert offers(monkeypatch, last=AWAY) >= 100


def test_right_is_retried_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offers(monkeypatch, last=NO_RIGHT) == 20 + 1
    assert offers(monkeypatch, *[AWAY] * 30, *[NO_RIGHT] * 9, AWAY, last=NO_RIGHT) == 40 + 20 + 1


def test_retry_time_starts_at_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offers(monkeypatch, *[AWAY] * 30, last=NO_SHELL) == 30 + pod.REFUSED_S + 1
    assert offers(monkeypatch, *[NO_SHELL] * 9, AWAY, last=NO_SHELL) == 10 + pod.REFUSED_S + 1


def test_unknown_error_is_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offers(monkeypatch, last=ValueError("ours")) == 1
