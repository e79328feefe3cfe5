"""The process that starts all commands of a local sandbox: PID 1 if the sandbox has namespaces.

A bare interpreter runs it as a script, so it imports the standard library only. Its stdin is a socket held by the
process that owns the sandbox; when that process dies, however it dies, the socket closes and everything here ends with
it. The socket carries one byte for each call, with a socket of that call's own for the messages:

    {"op": "exec", "argv", "cwd", "env", "timeout_s", "merge"}  ->  {"started"} + read ends of the output pipes, then
                                                                    {"exit": code or null, "timed_out"}
        with "input": true: the write end of its input, too; meanwhile the caller may send the byte "i" (interrupt it)
        or "k" (end it as timed out)
    {"op": "read", "path"}                                      ->  {} + the open file
    {"op": "write", "path", "size"} + bytes                     ->  {}
    {"op": "hello"}                                             ->  {}

The answer to a failed file operation is {"errno", "strerror"}; to a command ended by the deadline {"lost": "deadline"}.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import selectors
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

Message = dict[str, Any]
KILL_AGAIN_S = 0.5


@dataclass
class RunningCommand:
    """A started command: ``pid`` leads its session, ``pipes`` are the read ends of its output."""

    call: socket.socket
    pid: int
    pipes: list[int]
    until: float
    timed_out: bool = False


class Supervisor:
    """An event loop over the control socket, the calls of running commands, and output that has no reader left."""

    def __init__(self, control: socket.socket, deadline_s: float, limits: dict[str, int]) -> None:
        self.control = control
        self.limits = limits
        self.deadline = time.monotonic() + deadline_s
        self.jobs: dict[int, RunningCommand] = {}
        self.ready: dict[int, Callable[[], object]] = {}
        self.selector = selectors.DefaultSelector()

    def run(self) -> NoReturn:
        """Serve until the owner is gone or the deadline has passed."""
        self._watch(self.control.fileno(), self._accept)
        woken, wake = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._watch(woken, lambda: os.read(woken, 4096))
        while True:
            for key, _ in self.selector.select(self._patience()):
                self.ready[key.fd]()
            self._reap()
            self._enforce()

    def _watch(self, fd: int, act: Callable[[], object]) -> None:
        self.ready[fd] = act
        self.selector.register(fd, selectors.EVENT_READ)

    def _unwatch(self, fd: int) -> None:
        if self.ready.pop(fd, None):
            self.selector.unregister(fd)

    def _patience(self) -> float:
        return max(0.0, min([self.deadline, *(job.until for job in self.jobs.values())]) - time.monotonic())

    # -- calls

    def _accept(self) -> None:
        byte, fds, _, _ = socket.recv_fds(self.control, 1, 1)
        if not byte:
            self._end()
        for fd in fds:
            os.set_inheritable(fd, False)
            call = socket.socket(fileno=fd)
            try:
                self._serve(call)
            except OSError:
                call.close()

    def _serve(self, call: socket.socket) -> None:
        call.settimeout(60)
        with call.makefile("rb") as stream:
            request: Message = json.loads(stream.readline() or b"{}")
            payload = stream.read(request.get("size", 0))
        if request.get("op") == "exec":
            self._start(call, request)
            return
        fds: list[int] = []
        answer: Message = {}
        try:
            if request.get("op") == "read":
                fds = [open_regular(os.fsencode(request["path"]))]
            elif request.get("op") == "write":
                replace(os.fsencode(request["path"]), payload)
        except OSError as error:
            answer = {"errno": error.errno, "strerror": error.strerror}
        say(call, answer, fds)
        for fd in fds:
            os.close(fd)
        call.close()

    # -- commands

    def _start(self, call: socket.socket, request: Message) -> None:
        pipes = [os.pipe() for _ in range(1 if request["merge"] else 2)]
        takes, feed = os.pipe() if request.get("input") else (os.open(os.devnull, os.O_RDONLY), -1)
        pid = os.fork()
        if pid == 0:
            become(request, self.limits, takes, pipes[0][1], pipes[-1][1])
        for end in (takes, *(end for _, end in pipes)):
            os.close(end)
        job = RunningCommand(call, pid, [end for end, _ in pipes], time.monotonic() + request["timeout_s"])
        self.jobs[pid] = job
        say(call, {"started": pid}, [*job.pipes, *([feed] if feed >= 0 else [])])
        if feed >= 0:
            os.close(feed)
        self._watch(call.fileno(), lambda: self._hear(job))

    def _hear(self, job: RunningCommand) -> None:
        word = b""
        with suppress(OSError):
            word = job.call.recv(1)
        runs = self.jobs.get(job.pid) is job
        if word == b"i" and runs:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(job.pid, signal.SIGINT)
        elif word == b"k":
            job.until = min(job.until, time.monotonic())
        elif not word:
            self._hung_up(job)

    def _hung_up(self, job: RunningCommand) -> None:
        """Stop the command of a caller that finished or died; drain its output so that no child gets SIGPIPE."""
        self._unwatch(job.call.fileno())
        job.call.close()
        if self.jobs.get(job.pid) is job:
            kill_all(session(job.pid))
        for pipe in job.pipes:
            os.set_blocking(pipe, False)
            self._watch(pipe, lambda pipe=pipe: self._drain(pipe))  # type: ignore[misc]

    def _drain(self, pipe: int) -> None:
        if not os.read(pipe, 1 << 20):
            self._unwatch(pipe)
            os.close(pipe)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if job := self.jobs.pop(pid, None):
                code = os.waitstatus_to_exitcode(status)
                ending = None if job.timed_out else code if code >= 0 else 128 - code
                say(job.call, {"exit": ending, "timed_out": job.timed_out})

    def _enforce(self) -> None:
        now = time.monotonic()
        for job in self.jobs.values():
            if now >= job.until:
                job.timed_out = True
                job.until = now + KILL_AGAIN_S
                kill_all(session(job.pid))
        if now >= self.deadline:
            for job in self.jobs.values():
                say(job.call, {"lost": "deadline"})
            self._end()

    def _end(self) -> NoReturn:
        """Exit. The kernel ends the rest if this is PID 1; elsewhere kill all descendants first."""
        if os.getpid() != 1:
            for job in self.jobs.values():
                kill_all([job.pid])
            while remaining := descendants(os.getpid()):
                kill_all(remaining)
                self._reap()
                time.sleep(0.005)
        os._exit(0)


def say(call: socket.socket, message: Message, fds: list[int] | None = None) -> None:
    """Send a message to a caller, who may be gone."""
    with suppress(OSError):
        socket.send_fds(call, [json.dumps(message).encode() + b"\n"], fds or [])


def become(request: Message, limits: dict[str, int], stdin: int, stdout: int, stderr: int) -> NoReturn:
    """Replace the child process by the command, leader of its own session, inheriting nothing of this process."""
    try:
        os.setsid()
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        for name, most in limits.items():
            resource.setrlimit(getattr(resource, name), (most, most))
        with suppress(OSError):  # if memory runs out, commands die before this sandbox's first process
            Path("/proc/self/oom_score_adj").write_text("500")
        os.chdir(os.fsencode(request["cwd"]))
        environment = {os.fsencode(k): os.fsencode(v) for k, v in request["env"].items()}
        os.execve(request["argv"][0], [os.fsencode(a) for a in request["argv"]], environment)
    except BaseException as error:  # noqa: BLE001 - whatever it is, this copy of the process must not live on
        os.write(
            2, f"{request['argv'][0]} could not be started in {request['cwd']}: {error}\n".encode(errors="replace")
        )
    os._exit(126)


def open_regular(path: bytes) -> int:
    """Open a regular file; a pipe or a device left there must not block or flood the reader."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise FileNotFoundError(errno.ENOENT, "Not a regular file")


def replace(path: bytes, data: bytes) -> None:
    """Write a file beside its path and move it there, with the mode of an existing file."""
    folder = os.path.dirname(path)  # noqa: PTH120 - bytes
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - bytes
    part = os.path.join(folder, b".swe-argo-%d.part" % time.monotonic_ns())  # noqa: PTH118 - bytes
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)  # noqa: PTH116 - bytes
    except OSError:
        mode = 0o644
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(fd, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(data)
            os.fchmod(fd, mode)
        os.replace(part, path)  # noqa: PTH105 - bytes
    except OSError:
        os.unlink(part)  # noqa: PTH108 - bytes
        raise


def processes() -> dict[int, tuple[int, int]]:
    """Return {pid: (parent, session)} of every living process; empty without /proc (macOS)."""
    table = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name in brackets may itself hold brackets and spaces: proc(5).
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields[0] not in (b"Z", b"X"):
            table[int(folder.name)] = (int(fields[1]), int(fields[3]))
    return table


def descendants(root: int) -> list[int]:
    """Return all descendants of ``root``, which is a subreaper or alive."""
    table = processes()
    pids, wave = [], [root]
    while wave:
        wave = [pid for pid, (parent, _) in table.items() if parent in wave]
        pids += wave
    return pids


def session(leader: int) -> set[int]:
    """Return a command's processes: its whole session, for ``timeout`` leads a group of its own, and descendants."""
    return {leader, *(pid for pid, (_, sid) in processes().items() if sid == leader), *descendants(leader)}


def kill_all(pids: Iterable[int]) -> None:
    """Kill processes, each with its process group if it leads one."""
    for pid in pids:
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)


def guard() -> None:
    """On Linux, adopt orphans as children, to find them at the end, and keep commands from reading this process."""
    if sys.platform == "linux":
        import ctypes

        set_dumpable, set_child_subreaper = 4, 36  # prctl(2)
        libc = ctypes.CDLL(None)
        libc.prctl(set_dumpable, 0, 0, 0, 0)
        libc.prctl(set_child_subreaper, 1, 0, 0, 0)


if __name__ == "__main__":
    guard()
    os.umask(0o022)
    # As PID 1 an unhandled signal from inside is dropped by the kernel; Python's own handler would end the process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    inherited = socket.socket(fileno=os.dup(0))
    Supervisor(inherited, float(sys.argv[1]), json.loads(sys.argv[2])).run()
