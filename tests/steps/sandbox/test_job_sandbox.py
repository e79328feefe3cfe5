"""What a sandbox of jobs makes of its transport's word, over a transport that runs a real shell."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.machine import Machine
from swe_argo.steps.errors import InfraError, ResourceError, StepError
from swe_argo.steps.sandbox.job_sandbox import JobSandbox
from swe_argo.steps.sandbox.job_watch import PollTimes
from tests.steps.sandbox.test_jobs import shell

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jobs run in sandboxes, which are Linux")
MACHINE = Machine(backend="local", image="i", image_digest=None, isolation="none", network=True)


class ThisMachine:
    """This machine as a transport. ``ended``: what ``check`` says; after an answer that has ``last`` no script runs."""

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
        return ResourceError(FailureClass.OUT_OF_MEMORY, "it ran out of memory")


def lost() -> InfraError:
    return InfraError(FailureClass.SANDBOX_LOST, "it was removed")


def test_dead_machine_asks_the_transport(tmp_path: Path) -> None:
    box = JobSandbox(MACHINE, ThisMachine(tmp_path, lost(), last=b"begun\n"))
    with pytest.raises(InfraError, match="it was removed") as caught:
        box.exec("echo begun; sleep 60", timeout_s=20, cwd="/")
    assert caught.value.output == b"begun\n"
    living = JobSandbox(MACHINE, ThisMachine(tmp_path, last=b"begun\n"))
    with pytest.raises(InfraError, match="does not run commands") as caught:
        living.exec("echo begun; sleep 60", timeout_s=20, cwd="/")
    assert (caught.value.failure_class, caught.value.output) == (FailureClass.EXEC, b"begun\n")


def test_lost_leader_means_kill_or_loss(tmp_path: Path) -> None:
    wait = f"until [ -s {tmp_path}/jobs/*.out ]; do sleep 0.05; done"
    kill = f"echo begun; {wait}; kill -9 $(cat {tmp_path}/jobs/*.lock); sleep 2"
    assert JobSandbox(MACHINE, ThisMachine(tmp_path)).exec(kill, timeout_s=20, cwd="/").exit_code == 137
    with pytest.raises(InfraError, match="it was removed") as caught:
        JobSandbox(MACHINE, ThisMachine(tmp_path / "lost", lost())).exec(
            kill.replace("/jobs/", "/lost/jobs/"), timeout_s=20, cwd="/"
        )
    assert caught.value.output == b"begun\n"


def test_files_round_trip_over_transport(tmp_path: Path) -> None:
    box = JobSandbox(MACHINE, ThisMachine(tmp_path))
    box.write(f"{tmp_path}/new/file", b"data")
    assert box.read(f"{tmp_path}/new/file") == b"data"
