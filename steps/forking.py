"""Requests on a socket -> programs of ours, each a process forked from this one, which has imported what they need.

Importing takes a step longer than its own work. What begins many programs on one machine keeps a process that forks
them: ``python -m swe_argo.steps.forking``, a socket its standard input, or one forked from a program that has done
nothing yet but import (``fork_here``). Over that socket it sends, for each program, four descriptors: a socket for it
alone, its standard input, output and error. Over its own socket it sends the ``Request``, then a byte for each signal
that the program and its process group are to have; the exit code comes back. So signals come from the one process that
knows when the id of a program becomes somebody else's.

This process has one thread and opens nothing: a program finds what it would find if it had been started by itself. One
of them may be what forks tries of a step: ``python -m swe_argo.steps.forking STEP BACKEND``, which imports what these
need.
"""

from __future__ import annotations

import gc
import json
import locale
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
from codecs import lookup
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from swe_argo.steps.contracts.backends import is_own_backend
from swe_argo.steps.contracts.chain import GRADE
from swe_argo.steps.sandbox import load_backend

_SIZE_BYTES = 8


@dataclass(frozen=True)
class Request:
    """What a program is started with."""

    module: str
    words: list[str]
    """Its command line, after ``python -m module``."""
    environment: dict[str, str]
    """All of it."""
    folder: str
    """Its current one."""

    def to_bytes(self) -> bytes:
        """As it is sent: its size, then JSON."""
        data = json.dumps(asdict(self)).encode()
        return len(data).to_bytes(_SIZE_BYTES, "big") + data

    @classmethod
    def read(cls, line: socket.socket) -> Request:
        """Raises ValueError where whoever asks is gone before all has come."""
        size = int.from_bytes(line.recv(_SIZE_BYTES, socket.MSG_WAITALL), "big")
        return cls(**json.loads(line.recv(size, socket.MSG_WAITALL)))

    def run(self) -> None:
        """Be that program, in a process that was forked for it. Raises SystemExit, and what the program raises."""
        os.environ.clear()
        os.environ.update(self.environment)
        with suppress(OSError):  # it was removed
            os.chdir(self.folder)
        if not sys.flags.safe_path:
            sys.path[0] = self.folder
        sys.stdin, sys.stdout = _standard_stream(0, "rb"), _standard_stream(1, "wb")  # stderr is the same for all
        with suppress(OSError):  # what top calls it, on Linux
            Path("/proc/self/comm").write_text(self.module)
        sys.argv = [self.module, *self.words]
        sys.modules.pop(self.module, None)  # it is the main program now
        runpy.run_module(self.module, run_name="__main__", alter_sys=True)


def _standard_stream(number: int, mode: str) -> TextIO:
    """As it is in a process that is started with PYTHONUTF8=1."""
    at_once = mode == "wb" and bool(os.environ.get("PYTHONUNBUFFERED"))
    return TextIOWrapper(
        os.fdopen(number, mode, buffering=0 if at_once else -1, closefd=False),
        "utf-8",
        "surrogateescape",
        line_buffering=os.isatty(number) and not at_once,
        write_through=at_once,
    )


def main() -> None:
    """Import what tries of a step need, where one is named, and fork."""
    import_module("swe_argo.steps.entry")  # which all need
    if sys.argv[1:]:
        with suppress(Exception):  # each try meets it as well, and says so where somebody reads it
            _load(*sys.argv[1:])
    fork_from_stdin()


def fork_from_stdin() -> None:
    """Fork until nobody asks any more over the socket that standard input is. In what was forked, be the program."""
    control = socket.socket(fileno=os.dup(0))
    _close_standard_streams(0)
    if request := _serve(control):
        request.run()


def can_fork_here() -> bool:
    """Whether what is forked from this process is like what is started: no other thread, streams, text in UTF-8."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    is_utf8 = lookup(locale.getencoding()).name == "utf-8"
    return hasattr(os, "fork") and None not in streams and is_utf8 and threading.active_count() == 1


def fork_here() -> tuple[socket.socket, int]:
    """A process forked from this one, which forks others: the socket to ask it over, and its id.

    To be called before this process has done anything but import. It returns in this process alone: in a program that
    was asked for, that runs here, and ends this process.
    """
    control, its = socket.socketpair()
    if pid := os.fork():
        its.close()
        return control, pid
    control.close()
    os.setsid()  # Ctrl-C reaches whoever asks
    _close_standard_streams(0, 1, 2)
    if request := _serve(its):
        request.run()
    sys.exit()


def _serve(control: socket.socket) -> Request | None:
    gc.freeze()  # a collection that walks over what is there would copy it into every program
    return ForkServer(control).serve()


def _close_standard_streams(*numbers: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in numbers:
        os.dup2(nothing, number)
    os.close(nothing)


def _load(step: str, backend: str, *modules: str) -> None:
    for name in (f"swe_argo.steps.{step}", *modules):
        import_module(name)
    if not is_own_backend(backend):  # one's own may begin threads, which a fork would lose
        load_backend(backend)
    if step == GRADE.name:
        from swe_argo.steps.grading import official

        official.load_harness()


class ForkServer:
    """Forks a process for each request that comes over a socket, until nobody can ask any more."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._programs: dict[int, socket.socket] = {}
        self._ready = selectors.DefaultSelector()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        for each in (self._control, self._woken):
            self._ready.register(each, selectors.EVENT_READ)

    def serve(self) -> Request | None:
        """In a process forked for a program what it is to be; None in this one when nobody can ask any more."""
        while True:
            came = [key.fileobj for key, _ in self._ready.select()]
            for pid, line in self._programs.items():
                if line in came:
                    self._pass_on(line.recv(64), pid, line)
            if self._woken in came:
                os.read(self._woken, 4096)
            for pid in list(self._programs):
                self._tell_end(pid)
            if self._control in came:
                _, files, _, _ = socket.recv_fds(self._control, 1, 4)
                if len(files) < 4:
                    return None
                request = self._fork(socket.socket(fileno=files[0]), *files[1:])
                if request is not None:
                    return request

    def _pass_on(self, signals: bytes, pid: int, line: socket.socket) -> None:
        if not signals:  # whoever asked for it is gone; a try sees that at its standard input
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
        line = self._programs.pop(pid)
        with suppress(KeyError):
            self._ready.unregister(line)
        with line, suppress(OSError):
            line.send(str(os.waitstatus_to_exitcode(status)).encode())

    def _fork(self, line: socket.socket, *streams: int) -> Request | None:
        """The request in the process forked for it. Where there can be none, the line is closed without a word."""
        try:
            request = Request.read(line)
            pid = os.fork()
        except (ValueError, TypeError, OSError):
            line.close()
        else:
            if pid == 0:
                self._begin(line, streams)
                return request
            self._programs[pid] = line
            self._ready.register(line, selectors.EVENT_READ)
        for each in streams:
            os.close(each)
        return None

    def _begin(self, line: socket.socket, streams: tuple[int, ...]) -> None:
        """Be a process of its own, with nothing of the one that it comes from."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        self._ready.close()
        for other in (self._control, line, *self._programs.values()):
            other.close()
        for each in (*streams, self._woken, self._wake):
            os.close(each)


if __name__ == "__main__":
    main()
