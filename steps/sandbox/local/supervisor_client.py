"""The client of a local sandbox's supervisor: its messages as calls and exceptions."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError, ResourceError
from swe_argo.steps.sandbox.local.seccomp import with_filter
from swe_argo.steps.sandbox.protocol import ExecResult

SCRIPT = Path(__file__).resolve().with_name("supervisor.py")
START_S = 30.0
"""Seconds to wait for the supervisor's first answer to a call."""
GRACE_S = 15.0
"""Seconds after a command's timeout until a supervisor without a report counts as hung."""
SETTLE_S = 0.1
"""Seconds to wait for late output (``> >(tee log)``) after a command has ended."""
_ENDING_S = 2.0
"""Seconds that bubblewrap may outlive its supervisor."""
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


class SupervisorRequest:
    """A request on its own socket. ``fds``: the descriptors received with its answers."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.fds: list[int] = []
        self._pending = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket, which ends a command that still runs."""
        self.sock.close()
        for fd in self.fds:
            os.close(fd)
        self.fds = []

    def answer(self, patience_s: float) -> dict[str, Any]:
        """Return the supervisor's next message; add its descriptors to ``fds``. Raises OSError if lost or too late."""
        self.sock.settimeout(patience_s)
        while b"\n" not in self._pending:
            data, fds, _, _ = socket.recv_fds(self.sock, 4096, 3, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
            self.fds += fds
            if not data:
                raise ConnectionResetError
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def follow(self, readers: Mapping[int, Callable[[bytes], None]], patience_s: float) -> dict[str, Any]:
        """Read a command's output until its end is reported, and then the remaining output; return the report.

        ``readers``: descriptor -> taker of its output. Raises OSError if the connection is lost, or there is no report
        after ``patience_s``.
        """
        poll = select.poll()
        for fd in (self.sock.fileno(), *readers):
            poll.register(fd, select.POLLIN)
        open_fds = set(readers)
        ending: dict[str, Any] = {}
        give_up = time.monotonic() + patience_s
        while not ending or open_fds:
            remaining_s = give_up - time.monotonic()
            events = poll.poll(max(0.0, remaining_s) * 1000)
            if not events and not ending:
                raise TimeoutError
            for fd, _ in events:
                if fd in open_fds:
                    piece = os.read(fd, 1 << 20)
                    readers[fd](piece)
                    if not piece:
                        poll.unregister(fd)
                        open_fds.remove(fd)
                elif not ending:
                    ending = self.answer(GRACE_S)
                    poll.unregister(fd)
                    give_up = time.monotonic() + SETTLE_S
            # A child may print forever; the pipes' content at the command's end has been read by now.
            if ending and (not events or remaining_s < 0):
                break
        return ending


class _LimitedOutput:
    """Output up to a limit; further output is discarded so that the writer does not block."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.data = bytearray()
        self.truncated = False

    def take(self, piece: bytes) -> None:
        room = self.limit - len(self.data)
        self.data += piece[:room]
        self.truncated |= len(piece) > room


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
            with self.call({"op": "hello"}) as call:
                call.answer(START_S)
        except (OSError, InfraError) as error:
            detail = self._error_text()
            self.close()
            raise InfraError(FailureClass.SANDBOX_CREATE, "the local sandbox did not start", detail=detail) from error

    def exec(
        self,
        argv: list[str],
        *,
        timeout_s: float,
        cwd: str,
        env: dict[str, str] | None,
        merge: bool = False,
        max_output_bytes: int = 64 << 20,
    ) -> ExecResult:
        """Run a program to its end or timeout; ``max_output_bytes`` applies per stream. Raises InfraError if lost."""
        started = time.monotonic()
        out, err = _LimitedOutput(max_output_bytes), _LimitedOutput(max_output_bytes)
        request = {"op": "exec", "argv": argv, "cwd": cwd, "env": env or {}, "timeout_s": timeout_s, "merge": merge}
        try:
            with self.call(request) as call:
                call.answer(START_S)
                readers = {fd: stream.take for fd, stream in zip(call.fds, (out, err), strict=False)}
                ending = call.follow(readers, timeout_s + GRACE_S)
        except OSError as error:
            raise self.failure(error, bytes(out.data)) from error
        if "lost" in ending:
            raise self.failure(None, bytes(out.data))
        return ExecResult(
            exit_code=ending["exit"],
            stdout=bytes(out.data),
            stderr=bytes(err.data),
            timed_out=ending["timed_out"],
            truncated=out.truncated or err.truncated,
            seconds=time.monotonic() - started,
        )

    def read(self, path: str, max_bytes: int) -> bytes:
        """Read a file through a descriptor opened in the sandbox. Raises OSError as ``Sandbox.read``."""
        data = b""
        try:
            with self.call({"op": "read", "path": path}) as call:
                answer = call.answer(START_S)
                if not answer:
                    with os.fdopen(call.fds.pop(), "rb") as file:
                        data = file.read(max_bytes + 1)
        except OSError as error:
            raise self.failure(error) from error
        if answer:
            # A path through a file counts as missing, as in the other backends.
            number = errno.ENOENT if answer["errno"] == errno.ENOTDIR else answer["errno"]
            raise OSError(number, answer["strerror"], path)
        if len(data) > max_bytes:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return data

    def write(self, path: str, data: bytes) -> None:
        """Write a file atomically, and create its folders. Raises as ``Sandbox.write``."""
        try:
            with self.call({"op": "write", "path": path, "size": len(data)}, data) as call:
                answer = call.answer(START_S)
        except OSError as error:
            raise self.failure(error) from error
        if answer and answer["errno"] in _FULL_DISK:
            raise ResourceError(FailureClass.OUT_OF_DISK, f"could not write {path}: {answer['strerror']}")
        if answer:
            raise OSError(answer["errno"], answer["strerror"], path)

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
            self.kill()
            self._process.kill()
            self._process.wait()
        self._log.close()

    def ended_from_outside(self) -> InfraError | None:
        """Return why the sandbox was ended from outside (closed, deadline, killed); None if it was not, or unknown."""
        if self._closed or self._is_past_deadline():
            return self.failure(None)
        # Bubblewrap ends shortly after its child; code inside cannot kill it.
        with suppress(subprocess.TimeoutExpired):
            if self._is_bubblewrap and self._process.wait(_ENDING_S) < 0:
                return InfraError(FailureClass.SANDBOX_LOST, "the local sandbox was killed on this machine")
        return None

    def call(self, request: dict[str, Any], payload: bytes = b"") -> SupervisorRequest:
        """Send a request on a socket of its own. Raises InfraError if the supervisor is gone."""
        local, remote = socket.socketpair()
        try:
            with remote:
                socket.send_fds(self._control, [b"!"], [remote.fileno()])
            local.settimeout(START_S)
            local.sendall(json.dumps(request).encode() + b"\n" + payload)
        except OSError as error:
            local.close()
            raise self.failure(error) from error
        return SupervisorRequest(local)

    def failure(self, error: OSError | None, output: bytes = b"") -> InfraError:
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
        failure.output = output
        return failure

    def _is_past_deadline(self) -> bool:
        return time.monotonic() >= self._ends - 0.05

    def _error_text(self) -> str:
        if self._log.closed:
            return ""
        self._log.seek(0)
        return self._log.read(10_000).decode(errors="replace").strip()


def _start(
    command: list[str], env: dict[str, str], stdin: socket.socket, log: IO[bytes], *, is_bubblewrap: bool
) -> tuple[subprocess.Popen[bytes], int]:
    """Start the supervisor's command; return its process (or bubblewrap's), and the supervisor's pid on this host."""
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
