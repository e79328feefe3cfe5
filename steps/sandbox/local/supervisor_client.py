"""The client of a local sandbox's supervisor: its messages as calls and exceptions."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError, ResourceError
from swe_argo.steps.sandbox.local.seccomp import with_filter
from swe_argo.steps.sandbox.local.supervised_job import SupervisedJob
from swe_argo.steps.sandbox.local.supervisor_request import GRACE_S, Stream, SupervisorRequest, follow
from swe_argo.steps.sandbox.protocol import ExecResult

SCRIPT = Path(__file__).resolve().with_name("supervisor.py")
START_S = 30.0
"""Seconds to wait for the supervisor's first answer to a call."""
_ENDING_S = 2.0
"""Seconds that bubblewrap may outlive its supervisor."""
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk."""


class SupervisorClient:
    """A running supervisor, which ends when this process closes its socket."""

    def __init__(
        self, command: list[str], deadline_s: float, env: dict[str, str], *, is_bubblewrap: bool = False
    ) -> None:
        """Start ``command``, which must run supervisor.py. Raises InfraError if it does not answer.

        ``is_bubblewrap``: the command accepts bubblewrap's ``--info-fd`` and ``--seccomp`` before ``--``.
        """
        self.deadline_s = deadline_s
        self._ends = time.monotonic() + deadline_s
        self._closed = False
        self._is_bubblewrap = is_bubblewrap
        self._control, remote = socket.socketpair()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        try:
            with remote:
                self._process, self.pid = _start(command, env, remote, self._log, is_bubblewrap=is_bubblewrap)
        except OSError as error:
            self._control.close()
            self._log.close()
            raise InfraError(FailureClass.SANDBOX_CREATE, f"the local sandbox did not start: {error}") from error
        try:
            with self._call({"op": "hello"}) as call:
                call.answer(START_S)
        except (OSError, InfraError) as error:
            error_text = self._error_text()
            self.close()
            raise InfraError(
                FailureClass.SANDBOX_CREATE, "the local sandbox did not start", detail=error_text
            ) from error

    def exec(
        self, argv: list[str], *, timeout_s: float, cwd: str, env: dict[str, str], merge: bool, max_output_bytes: int
    ) -> ExecResult:
        """Run a program to its end or timeout; ``max_output_bytes`` applies per stream. Raises InfraError if lost."""
        started = time.monotonic()
        streams: list[Stream] = []
        request = {"op": "exec", "argv": argv, "cwd": cwd, "env": env, "timeout_s": timeout_s, "merge": merge}
        try:
            with self._call(request) as call:
                call.answer(START_S)
                streams = [Stream(fd, max_output_bytes) for fd in call.fds]
                ending = follow(call, streams, started + timeout_s + GRACE_S)
        except OSError as error:
            raise self._failure(error, streams) from error
        if "lost" in ending:
            raise self._failure(None, streams)
        return ExecResult(
            exit_code=ending["exit"],
            stdout=bytes(streams[0].data),
            stderr=b"" if merge else bytes(streams[1].data),
            timed_out=ending["timed_out"],
            truncated=any(stream.truncated for stream in streams),
            seconds=time.monotonic() - started,
        )

    def start(self, argv: list[str], *, cwd: str, env: dict[str, str], ends_bytes: int) -> SupervisedJob:
        """Start a program with open input and one output stream. Raises InfraError if the sandbox is lost."""
        request = {"op": "exec", "argv": argv, "cwd": cwd, "env": env, "timeout_s": self.deadline_s, "merge": True}
        call = self._call({**request, "input": True})
        try:
            call.answer(START_S)
        except OSError as error:
            call.close()
            raise self._failure(error) from error
        return SupervisedJob(call, ends_bytes, self._failure)

    def read(self, path: str, max_bytes: int) -> bytes:
        """Read a file through a descriptor opened in the sandbox. Raises OSError as ``Sandbox.read``."""
        try:
            with self._call({"op": "read", "path": path}) as call:
                answer = call.answer(START_S)
                if not answer:
                    return _read_all(call.fds.pop(), max_bytes)
        except OSError as error:
            raise self._failure(error) from error
        except _TooLargeError:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path) from None
        # A path through a file counts as missing, as in the other backends.
        number = errno.ENOENT if answer["errno"] == errno.ENOTDIR else answer["errno"]
        raise OSError(number, answer["strerror"], path)

    def write(self, path: str, data: bytes) -> None:
        """Write a file atomically, and create its folders. Raises as ``Sandbox.write``."""
        try:
            with self._call({"op": "write", "path": path, "size": len(data)}, data) as call:
                answer = call.answer(START_S)
        except OSError as error:
            raise self._failure(error) from error
        if answer:
            raise _write_failure(path, answer)

    def kill(self) -> None:
        """Kill the sandbox at once; running calls fail."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the supervisor and all its processes. Idempotent."""
        if self._closed:
            return
        self._closed = True
        # close() alone keeps the socket open for a thread that sends on it.
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            for pid in {self.pid, self._process.pid}:
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)
            self._process.wait()
        self._log.close()

    def ended_from_outside(self) -> InfraError | None:
        """Return why the sandbox was ended from outside (closed, deadline, killed); None if it was not, or unknown."""
        if self._closed or self._is_past_deadline():
            return self._failure(None)
        if self._is_bubblewrap and self._ended_by_signal():
            return InfraError(FailureClass.SANDBOX_LOST, "the local sandbox was killed on this machine")
        return None

    def _ended_by_signal(self) -> bool:
        """Return whether bubblewrap was killed, which code inside cannot do. It ends shortly after its child."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(_ENDING_S) < 0
        return False

    def _is_past_deadline(self) -> bool:
        return time.monotonic() >= self._ends - 0.05

    def _call(self, request: dict[str, Any], payload: bytes = b"") -> SupervisorRequest:
        """Send a request on a socket of its own. Raises InfraError if the supervisor is gone."""
        local, remote = socket.socketpair()
        try:
            with remote:
                socket.send_fds(self._control, [b"!"], [remote.fileno()])
            local.settimeout(START_S)
            local.sendall(json.dumps(request).encode() + b"\n" + payload)
        except OSError as error:
            local.close()
            raise self._failure(error) from error
        return SupervisorRequest(local)

    def _failure(self, error: OSError | None, streams: Sequence[Stream] = ()) -> InfraError:
        """Return the failure of a lost sandbox, given the connection's error, with the stdout so far."""
        if self._closed:
            cause = "was destroyed"
        elif self._is_past_deadline():
            cause = f"reached its deadline of {self.deadline_s:g} s"
        elif isinstance(error, TimeoutError):
            cause = "does not answer"
        else:
            cause = "ended unexpectedly"
        failure = InfraError(FailureClass.SANDBOX_LOST, f"the local sandbox {cause}", detail=self._error_text())
        failure.output = bytes(streams[0].data) if streams else b""
        return failure

    def _error_text(self) -> str:
        if self._log.closed:
            return ""
        self._log.seek(0)
        return self._log.read(10_000).decode(errors="replace").strip()


def _start(
    command: list[str], env: dict[str, str], stdin: socket.socket, log: IO[bytes], *, is_bubblewrap: bool
) -> tuple[subprocess.Popen[bytes], int]:
    """Start the supervisor's command; return its process, and the supervisor's pid on this host.

    With bubblewrap, the process is bubblewrap, which reports the pid of its child as JSON.
    """
    options: dict[str, Any] = {"stdin": stdin, "stdout": log, "stderr": log, "env": env, "start_new_session": True}
    if not is_bubblewrap:
        process = subprocess.Popen(command, **options)
        return process, process.pid
    receive, send = os.pipe()
    cut = command.index("--")
    command = [*command[:cut], "--info-fd", str(send), *command[cut:]]
    with os.fdopen(receive, "rb") as report:
        try:
            with with_filter(command) as (words, filter_fd):
                process = subprocess.Popen(words, pass_fds=(send, filter_fd), **options)
        finally:
            os.close(send)
        report_text = report.read()
    return process, json.loads(report_text)["child-pid"] if report_text else process.pid


class _TooLargeError(Exception):
    """A file is larger than ``max_bytes``."""


def _read_all(fd: int, max_bytes: int) -> bytes:
    """Read and close a file. Raises _TooLargeError."""
    with os.fdopen(fd, "rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise _TooLargeError
    return data


def _write_failure(path: str, answer: dict[str, Any]) -> Exception:
    """Return the error for the supervisor's answer to a failed write."""
    if answer["errno"] in FULL:
        return ResourceError(FailureClass.OUT_OF_DISK, f"could not write {path}: {answer['strerror']}")
    return OSError(answer["errno"], answer["strerror"], path)
