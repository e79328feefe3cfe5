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
        self.asked = 0

    def _fail(self) -> None:
        self.asked += 1
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
    found = []
    for call in (lambda: box.exec("true", timeout_s=1), lambda: box.read("/x"), lambda: box.write("/x", b"")):
        with pytest.raises(StepError) as caught:
            call()
        found.append(caught.value)
    return found


@pytest.mark.parametrize("failure_class", [FailureClass.EXEC, FailureClass.SANDBOX_LOST, FailureClass.OUT_OF_DISK])
def test_what_nobody_outside_confirms_is_the_codes_doing(failure_class: FailureClass) -> None:
    failing = Failing(InfraError(failure_class, "no answer"), None)
    for error in ways(as_untrusted(failing)):
        assert isinstance(error, SandboxBroken)
        assert (error.failure_class, error.reason) == (failure_class, "no answer")
    assert failing.asked == 1  # once broken, nothing more is asked of it


def test_what_somebody_outside_says_is_believed_with_what_was_seen() -> None:
    for error in ways(as_untrusted(Failing(LOST, EVICTED))):
        assert error is EVICTED
        assert "it ended" in error.detail


def test_memory_that_runs_out_is_the_worlds_once_and_the_codes_where_it_had_more() -> None:
    assert attribute_failure(FULL, FULL, enlarged=False) is FULL
    again = attribute_failure(FULL, FULL, enlarged=True)
    assert isinstance(again, SandboxBroken)
    assert again.failure_class is FailureClass.OUT_OF_MEMORY
    assert attribute_failure(LOST, EVICTED, enlarged=True) is EVICTED


def test_a_refusal_by_whoever_runs_commands_is_nobodys_doing_inside() -> None:
    refused = ConfigError("no right to exec")
    assert attribute_failure(refused, None, enlarged=False) is refused


def test_what_had_been_printed_stays_with_the_failure() -> None:
    error = InfraError(FailureClass.EXEC, "gone")
    error.output = b"so far"
    for outside in (None, InfraError(FailureClass.NODE_LOST, "node lost")):
        assert attribute_failure(error, outside, enlarged=False).output == b"so far"


def test_a_path_that_cannot_be_read_breaks_nothing() -> None:
    box = as_untrusted(Failing(FileNotFoundError("/x"), None))
    with pytest.raises(FileNotFoundError):
        box.read("/x")
    with pytest.raises(FileNotFoundError):
        box.exec("true", timeout_s=1)
