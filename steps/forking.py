"""Requests on a socket -> tries of one step, each a process forked from this one, which has imported what they need.

Importing takes a step longer than its own work. What starts many of a kind on one machine starts
``python -m steps.forking STEP BACKEND`` once, a socket its standard input, and sends over it, for each try, three
descriptors: a socket for this try, its standard input, its standard error. Over the try's own socket it sends the
``Request``, then a byte for each signal that the try and its process group are to have; the exit code comes back. So
signals come from the one process that knows when the id of a try becomes somebody else's.

This process has one thread and opens nothing: a try finds what it would find if it had been started by itself.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module

from steps.contracts.backends import is_own_backend
from steps.contracts.chain import GRADE, SOLVE, Step
from steps.entry import run_step
from steps.sandbox import load_backend

STEPS = {step.name: step for step in (SOLVE, GRADE)}
_SIZE_BYTES = 8


@dataclass(frozen=True)
class Request:
    """What a try is started with: its flags, and all of its environment."""

    flags: list[str]
    environment: dict[str, str]

    def to_bytes(self) -> bytes:
        """As it is sent: its size, then JSON."""
        data = json.dumps(asdict(self)).encode()
        return len(data).to_bytes(_SIZE_BYTES, "big") + data

    @classmethod
    def read(cls, line: socket.socket) -> Request:
        """Raises ValueError where whoever asks is gone before all has come."""
        size = int.from_bytes(line.recv(_SIZE_BYTES, socket.MSG_WAITALL), "big")
        return cls(**json.loads(line.recv(size, socket.MSG_WAITALL)))


def main() -> None:
    """Fork until nobody asks any more. In a process that was forked, be the step."""
    step = STEPS[sys.argv[1]]
    with suppress(Exception):  # each try meets it as well, and says so where somebody reads it
        _load(step, *sys.argv[2:])
    gc.freeze()  # a collection that walks over what is there would copy it into every try
    flags = ForkServer(socket.socket(fileno=0)).serve()
    if flags is not None:
        sys.argv = [f"steps.{step.name}", *flags]
        run_step(step, getattr(import_module(f"steps.{step.name}"), step.name))


def _load(step: Step, backend: str, *modules: str) -> None:
    for name in (f"steps.{step.name}", *modules):
        import_module(name)
    if not is_own_backend(backend):  # one's own may begin threads, which a fork would lose
        load_backend(backend)
    if step is GRADE:
        from steps.grading import official

        official.load_harness()


class ForkServer:
    """Forks a process for each request that comes over a socket, until nobody can ask any more."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._tries: dict[int, socket.socket] = {}
        self._ready = selectors.DefaultSelector()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        for each in (self._control, self._woken):
            self._ready.register(each, selectors.EVENT_READ)

    def serve(self) -> list[str] | None:
        """In a process forked for a try its flags; None in this one when nobody can ask any more."""
        while True:
            came = [key.fileobj for key, _ in self._ready.select()]
            for pid, line in self._tries.items():
                if line in came:
                    self._pass_on(line.recv(64), pid, line)
            if self._woken in came:
                os.read(self._woken, 4096)
            for pid in list(self._tries):
                self._tell_end(pid)
            if self._control in came:
                _, files, _, _ = socket.recv_fds(self._control, 1, 3)
                if len(files) < 3:
                    return None
                child = self._fork(socket.socket(fileno=files[0]), *files[1:])
                if child is not None:
                    return child.flags

    def _pass_on(self, signals: bytes, pid: int, line: socket.socket) -> None:
        if not signals:  # whoever asked for the try is gone; the try sees that at its standard input
            self._ready.unregister(line)
        for number in signals:
            try:
                os.killpg(pid, number)
            except ProcessLookupError:  # it has no group of its own yet
                os.kill(pid, number)

    def _tell_end(self, pid: int) -> None:
        ended_pid, status = os.waitpid(pid, os.WNOHANG)
        if not ended_pid:
            return
        line = self._tries.pop(pid)
        with suppress(KeyError):
            self._ready.unregister(line)
        with line, suppress(OSError):
            line.send(str(os.waitstatus_to_exitcode(status)).encode())

    def _fork(self, line: socket.socket, stdin: int, stderr: int) -> Request | None:
        """The request in the process forked for it. Where there can be none, the line is closed without a word."""
        try:
            request = Request.read(line)
            pid = os.fork()
        except (ValueError, TypeError, OSError):
            line.close()
        else:
            if pid == 0:
                self._begin(request, line, stdin, stderr)
                return request
            self._tries[pid] = line
            self._ready.register(line, selectors.EVENT_READ)
        for each in (stdin, stderr):
            os.close(each)
        return None

    def _begin(self, request: Request, line: socket.socket, stdin: int, stderr: int) -> None:
        """Be a process of its own, with nothing of the one that it comes from."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.dup2(stdin, 0)
        self._control.detach()  # was 0
        os.dup2(stderr, 2)
        self._ready.close()
        for other in (line, *self._tries.values()):
            other.close()
        for each in (stdin, stderr, self._woken, self._wake):
            os.close(each)
        os.environ.clear()
        os.environ.update(request.environment)


if __name__ == "__main__":
    main()
