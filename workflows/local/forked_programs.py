"""Programs of ours as processes of this machine, each forked by one that has imported what it needs."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from swe_argo.steps import forking
from swe_argo.steps.forking import Request


def request(module: str, words: list[str], environment: Mapping[str, str]) -> Request:
    """For ``python -m module words``, in the folder that is this process' now; text is UTF-8 there."""
    try:
        folder = str(Path.cwd())
    except OSError:  # it was removed
        folder = "."
    return Request(module, words, {**environment, "PYTHONUTF8": "1"}, folder)


class ForkedProgram:
    """One process of a program, and what it forks from there on: its process group."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line

    def wait(self) -> int:
        """The exit code, negative for a signal; one that nobody watches any more counts as killed. Call it once."""
        try:
            data = self._line.recv(16)
        except OSError:
            data = b""
        self._line.close()
        return int(data) if data else -signal.SIGKILL

    def signal(self, number: int) -> None:
        """Send a signal; nothing where it has ended."""
        with suppress(OSError):
            self._line.send(bytes([number]))

    def kill(self) -> None:
        """Send SIGKILL."""
        self.signal(signal.SIGKILL)


class Forker:
    """A process that forks programs, begun when the first is asked for, and again where it has died."""

    def __init__(self, begin: Callable[[socket.socket], Callable[[], object]]) -> None:
        """``begin`` has a new process fork what is asked for over a socket, and returns what waits for its end."""
        self._begin = begin
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._wait: Callable[[], object] = lambda: None

    def take(self, control: socket.socket, wait: Callable[[], object]) -> None:
        """Use a process that was begun already."""
        self._control, self._wait = control, wait

    def start(
        self, asked: Request, stdin: int | None = None, stdout: int | None = None, stderr: int | None = None
    ) -> ForkedProgram:
        """A program in a session of its own: Ctrl-C reaches this process alone, which then tells its programs.

        Each stream is a descriptor, which stays open here; /dev/null by default.
        """
        line, its_line = socket.socketpair()
        with Path(os.devnull).open("r+b", buffering=0) as nothing:
            streams = [nothing.fileno() if each is None else each for each in (stdin, stdout, stderr)]
            with suppress(OSError):  # wait() finds it ended
                with its_line, self._lock:
                    self._ask(its_line.fileno(), *streams)
                line.sendall(asked.to_bytes())
        return ForkedProgram(line)

    def close(self) -> None:
        """Keep the process no longer. What it forked goes on."""
        with self._lock:
            self._end()

    def _ask(self, *files: int) -> None:
        if self._control is not None:
            try:
                socket.send_fds(self._control, [b"\0"], files)
            except OSError:  # it has died
                self._end()
            else:
                return
        self._control, its = socket.socketpair()
        with its:
            self._wait = self._begin(its)
        socket.send_fds(self._control, [b"\0"], files)

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
            self._wait()
            self._control = None


def root() -> Forker:
    """What forks for this process all programs that it begins; it ends with this process."""
    return _root(os.environ.get("PYTHONPATH"))


@cache
def _root(_python_path: str | None) -> Forker:
    forker = Forker(_begin_interpreter)
    atexit.register(forker.close)
    return forker


def fork_root() -> None:
    """Have this process' programs forked from what it is now: to be called before it has done anything but import.

    It saves each of them an interpreter's start. Where that could make a difference to them, one is started as ever.
    """
    if forking.can_fork_here():
        control, pid = forking.fork_here()
        root().take(control, lambda: os.waitpid(pid, 0))


def _begin_interpreter(control: socket.socket) -> Callable[[], object]:
    process = subprocess.Popen(
        [sys.executable, "-m", "swe_argo.steps.forking"],
        stdin=control.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=os.environ | {"PYTHONUTF8": "1"},
    )
    return process.wait
