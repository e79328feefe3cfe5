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
    clock, made = [0.0], []
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)

    def once() -> None:
        clock[0] += 1
        made.append(clock[0])
        raise errors[len(made) - 1] if len(made) <= len(errors) else last

    patience = RetryPolicy(total_s=100, rights_s=20)
    with pytest.raises(type(last)):
        patience.retrying(pod._Passing(patience))(once)
    return len(made)


def test_a_shell_that_is_gone_is_not_waited_for_as_long_as_a_line_that_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offers(monkeypatch, last=NO_SHELL) == pod.REFUSED_S + 1
    assert offers(monkeypatch, last=AWAY) >= 100


def test_a_right_is_missed_for_a_while_as_a_server_that_starts_knows_no_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offers(monkeypatch, last=NO_RIGHT) == 20 + 1
    assert offers(monkeypatch, *[AWAY] * 30, *[NO_RIGHT] * 9, AWAY, last=NO_RIGHT) == 40 + 20 + 1


def test_how_long_the_shell_is_missing_counts_from_its_first_refusal_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offers(monkeypatch, *[AWAY] * 30, last=NO_SHELL) == 30 + pod.REFUSED_S + 1
    assert offers(monkeypatch, *[NO_SHELL] * 9, AWAY, last=NO_SHELL) == 10 + pod.REFUSED_S + 1


def test_what_no_exec_says_is_not_offered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offers(monkeypatch, last=ValueError("ours")) == 1
