"""Who is believed: a machine in which code has run that is not ours, or who runs it."""

from __future__ import annotations

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.machine import Machine
from swe_argo.steps.errors import ConfigError, InfraError, ResourceError, StepError
from swe_argo.steps.sandbox.protocol import ExecResult, Sandbox
from swe_argo.steps.sandbox.untrusted import SandboxBroken, as_untrusted, attribute_failure

LOST = InfraError(FailureClass.SANDBOX_LOST, "it ended")
EVICTED = InfraError(FailureClass.EVICTED, "pod x was evicted")
FULL = ResourceError(FailureClass.OUT_OF_MEMORY, "pod x ran out of memory")


class Failing:
    """A machine that answers with errors; ``outside`` is what is said of it elsewhere."""

    machine = Machine(backend="local", image="i", image_digest=None, isolation="none", network=False)

    def __init__(self, error: Exception | None, outside: StepError | None) -> None:
        self.error, self.outside = error, outside
        self.call_count = 0

    def _fail(self) -> None:
        self.call_count += 1
        if self.error is not None:
            raise self.error

    def exec(self, command: str, **_: object) -> ExecResult:
        self._fail()
        return ExecResult(0, b"", b"", False, False, 0.1)

    def read(self, path: str, *, max_bytes: int = 0) -> bytes:
        self._fail()
        return b""

    def write(self, path: str, data: bytes) -> None:
        self._fail()

    def outside_failure(self) -> StepError | None:
        return self.outside


def ways(box: Sandbox) -> list[StepError]:
    """How each of the three calls fails."""
    failures = []
    for call in (lambda: box.exec("true", timeout_s=1), lambda: box.read("/x"), lambda: box.write("/x", b"")):
        with pytest.raises(StepError) as caught:
            call()
        failures.append(caught.value)
    return failures


@pytest.mark.parametrize("failure_class", [FailureClass.EXEC, FailureClass.SANDBOX_LOST, FailureClass.OUT_OF_DISK])
def test_inside_failure_breaks_sandbox(failure_class: FailureClass) -> None:
    failing = Failing(InfraError(failure_class, "no answer"), None)
    for error in ways(as_untrusted(failing)):
        assert isinstance(error, SandboxBroken)
        assert (error.failure_class, error.reason) == (failure_class, "no answer")
    assert failing.call_count == 1  # once broken, nothing more is asked of it


def test_outside_failure_is_believed() -> None:
    for error in ways(as_untrusted(Failing(LOST, EVICTED))):
        assert error is EVICTED
        assert "it ended" in error.detail


def test_memory_failure_is_outside_once() -> None:
    assert attribute_failure(FULL, FULL, enlarged=False) is FULL
    again = attribute_failure(FULL, FULL, enlarged=True)
    assert isinstance(again, SandboxBroken)
    assert again.failure_class is FailureClass.OUT_OF_MEMORY
    assert attribute_failure(LOST, EVICTED, enlarged=True) is EVICTED


def test_exec_refusal_is_unchanged() -> None:
    refused = ConfigError("no right to exec")
    assert attribute_failure(refused, None, enlarged=False) is refused


def test_failure_keeps_printed_output() -> None:
    error = InfraError(FailureClass.EXEC, "gone")
    error.output = b"so far"
    for outside in (None, InfraError(FailureClass.NODE_LOST, "node lost")):
        assert attribute_failure(error, outside, enlarged=False).output == b"so far"


def test_missing_file_is_no_broken_sandbox() -> None:
    box = as_untrusted(Failing(FileNotFoundError("/x"), None))
    with pytest.raises(FileNotFoundError):
        box.read("/x")
    with pytest.raises(FileNotFoundError):
        box.exec("true", timeout_s=1)
