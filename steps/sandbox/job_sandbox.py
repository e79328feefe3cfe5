"""A sandbox over a transport that runs short scripts in a machine: its commands are detached jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar, Unpack

from swe_argo.steps.contracts.data import WORKDIR
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.machine import Machine
from swe_argo.steps.errors import InfraError, ResourceError, StepError
from swe_argo.steps.sandbox.job_watch import PollTimes
from swe_argo.steps.sandbox.jobs import Job, Jobs
from swe_argo.steps.sandbox.polled_job import PolledJob
from swe_argo.steps.sandbox.protocol import ExecResult, JobProgress, StartedJob
from swe_argo.steps.sandbox.short_exec import StreamExec
from swe_argo.steps.sandbox.transfer import read_file, write_file
from swe_argo.steps.sandbox.wrapper import PollOptions


class Transport(Protocol):
    """The connection to one machine, with the facts known about that machine from outside."""

    jobs_root: str
    """A folder in the machine for the files of jobs. Neither tests nor diffs look there."""
    poll_times: PollTimes

    def short_exec(self, script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> tuple[int, bytes]:
        """Run a short script, see ``ShortExec``."""

    def check(self) -> None:
        """Raise the cause if the machine no longer runs."""

    def outside_failure(self) -> StepError | None:
        """Return the failure known from outside, see ``Sandbox.outside_failure``."""

    def out_of_memory(self) -> ResourceError:
        """Return the failure to raise when the kernel killed a process for lack of memory."""


T_co = TypeVar("T_co", bound=Transport, covariant=True)


class JobSandbox(Generic[T_co]):
    """A running machine behind a transport. Its methods raise the transport's errors besides those of ``Sandbox``.

    ``stream_exec``: a transport that streams output; with it, a short command needs fewer processes.
    """

    def __init__(self, machine: Machine, transport: T_co, stream_exec: StreamExec | None = None) -> None:
        self.machine = machine
        self.transport = transport
        self._jobs = Jobs(
            transport.short_exec, root=transport.jobs_root, tempo=transport.poll_times, stream_exec=stream_exec
        )

    def exec(
        self,
        command: str,
        *,
        timeout_s: float,
        cwd: str = WORKDIR,
        env: dict[str, str] | None = None,
        merge: bool = False,
        max_output_bytes: int = 64 << 20,
    ) -> ExecResult:
        """Run a command, see ``Sandbox.exec``. Raises InfraError (EXEC) if the machine lives but runs no commands."""
        with self.checked():
            result = self._jobs.run(Job(command, timeout_s, cwd, env or {}, merge, max_output_bytes))
        self.judge(result.oom_kills, result.stdout, is_lost=result.is_lost)
        return result.require_end()

    def start(
        self,
        command: str,
        *,
        ends_bytes: int = 512 << 10,
        note: str | None = None,
        bell: str | None = None,
        cwd: str = WORKDIR,
        env: dict[str, str] | None = None,
    ) -> StartedJob:
        """Start a command, see ``JobStarter.start``."""
        return _CheckedJob(
            self, PolledJob(self._jobs, command, cwd=cwd, env=env or {}, ends_bytes=ends_bytes, note=note, bell=bell)
        )

    def read(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        """Read a file, see ``Sandbox.read``."""
        return read_file(self.transport.short_exec, path, max_bytes=max_bytes)

    def write(self, path: str, data: bytes) -> None:
        """Write a file, see ``Sandbox.write``."""
        write_file(self.transport.short_exec, path, data)

    def outside_failure(self) -> StepError | None:
        """Return the failure known from outside, see ``Sandbox.outside_failure``."""
        return self.transport.outside_failure()

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Raise the machine's failure instead, if commands do not run because the machine failed."""
        try:
            yield
        except InfraError as error:
            if error.failure_class is FailureClass.EXEC:
                self._check(error.output)
            raise

    def judge(self, oom_kills: int, output: bytes, *, is_lost: bool) -> None:
        """Raise the machine's failure, judging by a job's result.

        A lost job in a machine that lives killed every process there, its own leader included.
        """
        if oom_kills:
            failure = self.transport.out_of_memory()
            failure.output = output
            raise failure
        if is_lost:
            self._check(output)

    def _check(self, output: bytes) -> None:
        """Call ``Transport.check``; put the command's output on the failure."""
        try:
            self.transport.check()
        except StepError as error:
            error.output = output
            raise


class _CheckedJob:
    """A started job that raises the machine's failure if the machine failed."""

    def __init__(self, box: JobSandbox[Any], job: PolledJob) -> None:
        self._box = box
        self._job = job

    def poll(self, **options: Unpack[PollOptions]) -> JobProgress:
        with self._box.checked():
            progress, seen = self._job.poll(**options)
        self._box.judge(seen.oom_kills, progress.output, is_lost=seen.has_ended and seen.rc is None)
        return progress

    def send(self, data: bytes) -> None:
        with self._box.checked():
            self._job.send(data)

    def close_input(self) -> None:
        with self._box.checked():
            self._job.close_input()

    def interrupt(self) -> None:
        with self._box.checked():
            self._job.interrupt()
