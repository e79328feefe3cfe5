"""Short execs over a shell that stays open in the machine and runs one script after another.

Starting a process in a machine costs an engine or a cluster about 50 ms of a processor; a script over an open line
costs 5. Nothing depends on the line: it holds no state, a script whose line was lost runs in an exec of its own, and
every script may run twice.
"""

from __future__ import annotations

import base64
import re
import secrets
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

from swe_argo.steps.sandbox.script_output import ScriptOutput

STDIN_BYTES = 64 << 10
"""A script with more stdin gets an exec of its own, which takes the bytes unencoded."""
IDLE_S = 30.0
"""Seconds after which an unused line is dropped: load balancers silently forget idle connections after a minute or
more."""
_SPARE = 2
"""The number of idle shells kept: one for a waiting caller, one for a caller that sends meanwhile."""
_LOSSES = 3
_PAUSE_S = 60.0
"""Seconds without a new line after ``_LOSSES`` losses in a row: something on the way does not keep connections."""


class Line(Protocol):
    """A connection to the stdin and stdout of a process. Its methods raise OSError if it is lost."""

    def send(self, data: bytes) -> None:
        """Send all of ``data``."""

    def receive(self, silence_s: float) -> bytes:
        """Return the next bytes, at least one; silence for ``silence_s`` is a loss. Raises EOFError at the end."""

    def close(self) -> None:
        """Close the connection. Idempotent."""


class OpenShells:
    """The open shells of one machine. Thread-safe: a shell runs one script at a time; if none is free, one is opened.

    ``connect`` starts one, by /bin/sh that reads its stdin, and raises the errors of an exec that could not start.
    ``silence_s``: how much longer than its ``wait_s`` a script may be silent.
    """

    def __init__(self, connect: Callable[[], Line], *, silence_s: float, idle_s: float = IDLE_S) -> None:
        self._connect = connect
        self._idle_s = idle_s
        self._silence_s = silence_s
        self._lock = threading.Lock()
        self._idle: list[_Shell] = []
        self._hang_up = weakref.finalize(self, _close_all, self._idle)
        self._lost = 0
        self._paused_until = 0.0
        self._closed = False

    def run(self, script: str, stdin: bytes, wait_s: float) -> tuple[int, bytes] | None:
        """Run a script, see ``ShortExec``. Return None if it needs an exec of its own: line lost, or much stdin.

        Raises the errors of ``connect``.
        """
        if len(stdin) > STDIN_BYTES or time.monotonic() < self._paused_until:
            return None
        shell = self._take() or _Shell(self._connect())
        try:
            answer = shell.run(script, stdin, wait_s + self._silence_s)
        except (OSError, EOFError):
            shell.line.close()
            self._lost += 1
            if self._lost % _LOSSES == 0:
                self._paused_until = time.monotonic() + _PAUSE_S
            return None
        except BaseException:
            shell.line.close()
            raise
        self._lost = 0
        self._give_back(shell)
        return answer

    def close(self) -> None:
        """Close the lines, which ends the shells. Idempotent."""
        with self._lock:
            self._closed = True
        self._hang_up()

    def _take(self) -> _Shell | None:
        oldest = time.monotonic() - self._idle_s
        with self._lock:
            stale = [shell for shell in self._idle if shell.used_at < oldest]
            self._idle[:] = [shell for shell in self._idle if shell not in stale]
            shell = self._idle.pop() if self._idle else None
        _close_all(stale)
        return shell

    def _give_back(self, shell: _Shell) -> None:
        with self._lock:
            keep = not self._closed and len(self._idle) < _SPARE
            if keep:
                self._idle.append(shell)
        if not keep:
            shell.line.close()


class _Shell:
    def __init__(self, line: Line) -> None:
        self.line = line
        self.used_at = time.monotonic()
        self._word = secrets.token_hex(8)
        self._count = 0

    def run(self, script: str, stdin: bytes, wait_s: float) -> tuple[int, bytes]:
        """Run one script. Raises OSError or EOFError if the line is lost or the output too long."""
        self._count += 1
        word = f"{self._word}-{self._count}"
        # In a subshell, `exit`, redirections and variables stay the script's own. Only the shell itself reads the line.
        text = f"(\n{script}\n) </dev/null"
        if stdin:
            text = f"base64 -d <<'{word}' | (\n{base64.encodebytes(stdin).decode()}{word}\n{script}\n)"
        self.line.send(f"{text}\nprintf '\\n%s %s\\n' {word} $?\n".encode())
        behind = re.compile(rb"\n%s ([0-9]{1,3})\n\Z" % word.encode())
        output = ScriptOutput(wait_s)
        while True:
            output.take(self.line.receive(wait_s))
            if found := behind.search(output.data, max(0, len(output.data) - len(word) - 7)):
                self.used_at = time.monotonic()
                return int(found[1]), bytes(output.data[: found.start()])


def _close_all(shells: list[_Shell]) -> None:
    while shells:
        shells.pop().line.close()
