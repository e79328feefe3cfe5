"""Sandboxes of jobs, and the wrappers around sandboxes: the cause of a failure, and the log of commands."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swe_argo.steps.contracts.data import Machine
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError, ResourceError, StepError
from swe_argo.steps.sandbox.job_sandbox import JobSandbox
from swe_argo.steps.sandbox.job_watch import PollTimes
from swe_argo.steps.sandbox.protocol import ExecResult, Sandbox
from swe_argo.steps.sandbox.untrusted import SandboxBroken, as_untrusted, attribute_failure
from swe_argo.steps.sandbox.wrapper import start_job, with_command_log
from tests.steps.sandbox.test_jobs import shell

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jobs run in sandboxes, which are Linux")
MACHINE = Machine(backend="local", image="i", image_digest=None, isolation="none", network=True)
LOST = InfraError(FailureClass.SANDBOX_LOST, "it was removed")
EVICTED = InfraError(FailureClass.EVICTED, "pod x was evicted")
FULL = ResourceError(FailureClass.OUT_OF_MEMORY, "pod x ran out of memory")
BEGINS = "echo begun; sleep 60"


class ShellTransport:
    """This machine as a transport. ``ended``: the failure of ``check``; after an answer with ``last`` nothing runs."""

    def __init__(self, folder: Path, ended: StepError | None = None, last: bytes | None = None) -> None:
        self.jobs_root = str(folder / "jobs")
        self.poll_times = PollTimes(start_wait_s=0.3, poll_wait_s=0.3, attempts=2)
        self.ended = ended
        self.last = last
        self.is_silent = False

    def short_exec(self, script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> tuple[int, bytes]:
        if self.is_silent:
            return 126, b"no shell"
        code, answer = shell(script, stdin, wait_s=wait_s)
        self.is_silent = self.last is not None and self.last in answer
        return code, answer

    def check(self) -> None:
        if self.ended:
            raise self.ended

    def outside_failure(self) -> StepError | None:
        return self.ended

    def out_of_memory(self) -> ResourceError:
        return FULL


def job_box(folder: Path, ended: StepError | None = None, last: bytes | None = None) -> Sandbox:
    return JobSandbox(MACHINE, ShellTransport(folder, ended, last))


@pytest.mark.parametrize(
    ("ended", "failure_class", "reason"),
    [(LOST, FailureClass.SANDBOX_LOST, "it was removed"), (None, FailureClass.EXEC, "does not run commands")],
)
def test_dead_machine_asks_the_transport(
    tmp_path: Path, ended: StepError | None, failure_class: FailureClass, reason: str
) -> None:
    with pytest.raises(InfraError, match=reason) as caught:
        job_box(tmp_path, ended, b"begun\n").exec(BEGINS, timeout_s=20, cwd="/")
    assert (caught.value.failure_class, caught.value.output) == (failure_class, b"begun\n")


def test_lost_leader_means_kill_or_loss(tmp_path: Path) -> None:
    jobs = f"{tmp_path}/jobs"
    kill = f"echo begun; until [ -s {jobs}/*.out ]; do sleep 0.05; done; kill -9 $(cat {jobs}/*.lock); sleep 2"
    assert job_box(tmp_path).exec(kill, timeout_s=20, cwd="/").exit_code == 137
    with pytest.raises(InfraError, match="it was removed") as caught:
        job_box(tmp_path / "lost", LOST).exec(kill.replace("/jobs/", "/lost/jobs/"), timeout_s=20, cwd="/")
    assert caught.value.output == b"begun\n"


# -- failures of an untrusted sandbox


class Failing:
    """A sandbox whose calls fail. ``outside``: the failure that the backend knows."""

    machine = MACHINE

    def __init__(self, error: Exception | None = None, outside: StepError | None = None) -> None:
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


CALLS: list[Callable[[Sandbox], object]] = [
    lambda box: box.exec("true", timeout_s=1),
    lambda box: box.read("/x"),
    lambda box: box.write("/x", b""),
]


def failures(box: Sandbox) -> Iterator[StepError]:
    """Yield the failure of each call."""
    for call in CALLS:
        with pytest.raises(StepError) as caught:
            call(box)
        yield caught.value


@pytest.mark.parametrize("failure_class", [FailureClass.EXEC, FailureClass.SANDBOX_LOST, FailureClass.OUT_OF_DISK])
def test_inside_failure_breaks_sandbox(failure_class: FailureClass) -> None:
    failing = Failing(InfraError(failure_class, "no answer"))
    for error in failures(as_untrusted(failing)):
        assert isinstance(error, SandboxBroken)
        assert (error.failure_class, error.reason) == (failure_class, "no answer")
    assert failing.call_count == 1, "a broken sandbox is not called again"


def test_outside_failure_is_believed() -> None:
    for error in failures(as_untrusted(Failing(LOST, EVICTED))):
        assert error is EVICTED
        assert "it was removed" in error.detail


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
    box = as_untrusted(Failing(FileNotFoundError("/x")))
    for call in CALLS:
        with pytest.raises(FileNotFoundError):
            call(box)


@pytest.mark.parametrize(
    ("ended", "kind", "failure_class"),
    [(None, SandboxBroken, FailureClass.EXEC), (LOST, InfraError, FailureClass.SANDBOX_LOST)],
)
def test_failed_job_is_judged_like_exec(
    tmp_path: Path, ended: StepError | None, kind: type[StepError], failure_class: FailureClass
) -> None:
    job = start_job(as_untrusted(job_box(tmp_path, ended, b"begun\n")), BEGINS, cwd="/")
    assert job.poll(wait_s=60, until_output=True).output == b"begun\n"
    with pytest.raises(kind) as caught:
        job.poll(wait_s=20)
    assert caught.value.failure_class is failure_class
    assert ended is None or caught.value is ended


# -- started jobs behind wrappers


def test_backend_may_lack_started_jobs() -> None:
    for box in (Failing(), as_untrusted(Failing())):
        assert box.exec("true", timeout_s=1).exit_code == 0
        with pytest.raises(ConfigError, match="backend local cannot run commands in the background"):
            start_job(box, "true")


def test_started_job_works_when_wrapped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "swe_argo.steps.sandbox.wrapper")
    command = "read -r line; echo $line; cat; trap 'exit 3' INT; echo trapped; while :; do sleep 0.05; done"
    job = start_job(with_command_log(as_untrusted(job_box(tmp_path))), command, cwd="/")
    job.send(b"hello\n")
    job.close_input()
    output = b""
    while not output.endswith(b"trapped\n"):
        output += job.poll(wait_s=0.2).output
    assert output == b"hello\ntrapped\n"
    assert job.poll(wait_s=60, quiet_s=0.5).quiet
    job.interrupt()
    assert job.poll(wait_s=20).exit_code == 3
    assert [record.message for record in caplog.records] == [f"command {command!r}: started"]
