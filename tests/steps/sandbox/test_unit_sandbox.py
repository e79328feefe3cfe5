"""A sandbox of one try: how large it is, and what happens when it cannot be removed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import cast

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError
from swe_argo.steps.sandbox import unit_sandbox
from swe_argo.steps.sandbox.protocol import Sandbox, SandboxRequest
from tests.bench.start import INSTANCE, RUN


@pytest.mark.parametrize(
    ("base", "retried", "expected"),
    [(1, 1, 1), (1, 4, 4), (1, 16, 8), (2, 8, 8), (0.5, 4, 2), (0.25, 64, 8), (12, 1, 12), (12, 2, 12)],
)
def test_retry_factor_doubles_to_eight(base: float, retried: float, expected: float) -> None:
    assert unit_sandbox._factor(base, retried) == expected


class Stubborn:
    """A backend whose engine goes away before its machine can be removed."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box

    def create(self, request: SandboxRequest) -> Sandbox:
        return self.box

    def destroy(self, sandbox: Sandbox) -> None:
        raise InfraError(FailureClass.SANDBOX_LOST, "removing failed")


@pytest.fixture
def stubborn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_sandbox, "open_backend", lambda _name: Stubborn(cast(Sandbox, object())))


def machine() -> AbstractContextManager[Sandbox]:
    context = unit_sandbox.Context(attempt=1, try_name="t")
    return unit_sandbox.open_sandbox(context, RUN, INSTANCE, step="grade", network=False, deadline_s=1.0)


def test_failed_removal_keeps_the_work(stubborn: None, capsys: pytest.CaptureFixture[str]) -> None:
    with machine():
        is_worked = True
    assert is_worked
    assert "was not removed: removing failed" in capsys.readouterr().err


def test_first_failure_is_raised(stubborn: None) -> None:
    with pytest.raises(InfraError, match="the line went dead"), machine():
        raise InfraError(FailureClass.EXEC, "the line went dead")
