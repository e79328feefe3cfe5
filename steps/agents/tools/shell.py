"""The shell of an attempt: each command starts where the last one ended, or anew; one may go on running between calls.

Kept from command to command are the folder, variables, functions, aliases, options and the umask. Lost is all that a
command changed, where it ended by ``exec`` or a signal.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

from swe_argo.steps.agents.tools import shell_script
from swe_argo.steps.agents.tools.result import ToolResult
from swe_argo.steps.agents.tools.text import clean_text, cut_apart, readable, whole
from swe_argo.steps.sandbox.protocol import FLOOD_BYTES, ExecResult, Sandbox, StartedJob
from swe_argo.steps.sandbox.wrapper import start_job

ALONE_BYTES = 16 << 20
"""Bytes of a command's output that are fetched where it runs to its end: what is behind is not seen."""
ENDS_BYTES = 512 << 10
"""Bytes of the beginning and of the end of an output that are fetched; what is between is not."""
_INTERRUPT_S = 2.0
_NOTE_LINES = 3
_SIGKILL = 137
_WITHOUT_SESSION = "[The folder for temporary files cannot be used: the command ran by itself, without a session.]"
_KILLED = "[The shell was killed by the command. The next command gets a new one.]"
_FLOOD = f"[The command was ended: it had printed more than {FLOOD_BYTES >> 20} MiB.]"


@dataclass
class _Running:
    """A command that has not ended, when it began, and what of its output is the beginning of a character."""

    job: StartedJob
    command: str
    began: float
    part: bytes = b""


@dataclass(frozen=True)
class Patience:
    """How long one call waits for a command that may go on: ``seconds`` in all, ``quiet_s`` without new output."""

    seconds: float | None = None
    quiet_s: float | None = None


class Shell:
    """Runs commands in one sandbox. ``persistent``: a command starts where the last one ended."""

    def __init__(self, sandbox: Sandbox, *, persistent: bool) -> None:
        self._sandbox = sandbox
        self._workdir = sandbox.machine.workdir
        self._persistent = persistent
        name = f".shell-{secrets.token_hex(8)}"
        self._home = f"${{TMPDIR:-/tmp}}/{name}"
        self._note = f"/tmp/{name}.where"  # noqa: S108 - the sandbox's own
        self._number = 0
        """Of the last command that may go on running."""
        self._where = ("", "")
        self._running: _Running | None = None
        self._began = False
        """Whether there is a state to go on from, so that nothing need be activated again."""

    @property
    def running(self) -> bool:
        """Whether the last command had not ended when it was last looked at."""
        return self._running is not None

    def run(
        self, command: str, *, timeout_s: float, patience: Patience | None = None, apart: bool = False
    ) -> ToolResult:
        """Run a command to its end, or until ``timeout_s``, when it is ended.

        With ``patience`` it can be sent input, and goes on running when patience is over. Not to be called while
        another one runs. ``apart``: what it prints to stderr is the outcome's ``errors``. Raises what Sandbox raises.
        """
        if patience is None:
            return self._alone(command, timeout_s, apart=apart)
        self._number += 1
        script = shell_script.going_on(self._one_word(command), self._home, self._workdir, self._note, self._number)
        job = start_job(self._sandbox, script, ends_bytes=ENDS_BYTES, note=self._note)
        self._running = _Running(job, command, time.monotonic())
        return self._look(timeout_s, patience)

    def _alone(self, command: str, timeout_s: float, *, apart: bool) -> ToolResult:
        """A command that nobody looks at before its end is one of the machine's own: a process costs a millisecond."""
        word = self._one_word(command)
        result = self._sandbox.exec(
            shell_script.going_on(word, self._home, self._workdir) if self._persistent else shell_script.alone(word),
            timeout_s=timeout_s,
            merge=not apart,
            max_output_bytes=ALONE_BYTES,
        )
        if self._persistent and result.exit_code == shell_script.NO_SESSION and not self._began:
            return self._without_session(command, timeout_s)
        self._began = self._persistent
        text, tail = _both_ends(result)
        return ToolResult(
            text,
            result.exit_code,
            timed_out=result.timed_out,
            seconds=result.seconds,
            tail=tail,
            errors=readable(result.stderr) if apart else None,
        )

    def watch(self, *, timeout_s: float, patience: Patience) -> ToolResult:
        """What the running command has printed since. ``timeout_s`` counts from its start, as in all that follow."""
        return self._look(timeout_s, patience)

    def send(self, text: str, *, timeout_s: float, patience: Patience) -> ToolResult:
        """Send a line to the running command's input; nobody need be reading."""
        self._job.send(text.encode("utf-8", "surrogateescape") + b"\n")
        return self._look(timeout_s, patience)

    def close_input(self, *, timeout_s: float, patience: Patience) -> ToolResult:
        """End the running command's input."""
        self._job.close_input()
        return self._look(timeout_s, patience)

    def interrupt(self) -> ToolResult:
        """Interrupt the running command (SIGINT); one that has not ended two seconds later is killed."""
        self._job.interrupt()
        return self._look(time.monotonic() - self._current.began + _INTERRUPT_S, Patience())

    @property
    def _job(self) -> StartedJob:
        return self._current.job

    @property
    def _current(self) -> _Running:
        if self._running is None:
            raise ValueError("no command is running")
        return self._running

    def _look(self, timeout_s: float, patience: Patience) -> ToolResult:
        running = self._current
        remaining_s = max(0.05, timeout_s - (time.monotonic() - running.began))
        wait_s = min(remaining_s, patience.seconds or remaining_s)
        progress = running.job.poll(wait_s=wait_s, quiet_s=patience.quiet_s, kill=wait_s == remaining_s)
        seconds = time.monotonic() - running.began
        first, last = running.part + progress.output, progress.tail
        if progress.running:
            # A program that fills a buffer may stop within a character: that is shown together with its rest.
            newest = first if last is None else last
            running.part = newest[len(whole(newest)) :]
            first, last = (whole(first), None) if last is None else (first, whole(last))
        text, tail = (readable(first), None) if last is None else cut_apart(first, last)
        if progress.running:
            return ToolResult(text, None, seconds=seconds, tail=tail, running=True, quiet=progress.quiet)
        self._running = None
        ended_itself = progress.note[:1] == (str(self._number),)
        if progress.exit_code == shell_script.NO_SESSION and not self._began and not ended_itself:
            return self._without_session(running.command, timeout_s)
        self._began = True
        if len(progress.note) == _NOTE_LINES:
            self._where = (clean_text(progress.note[1]), clean_text(progress.note[2]))
        code = _SIGKILL if progress.flooded else progress.exit_code
        killed = _KILLED if code == _SIGKILL and not ended_itself else ""
        return ToolResult(
            text,
            code,
            timed_out=progress.timed_out,
            seconds=seconds,
            tail=tail,
            note=_FLOOD if progress.flooded else killed,
            where=self._where,
        )

    def _one_word(self, text: str) -> str:
        # Without namespaces, paths are translated, which must be in sight, and the words are on this host's lines.
        return shell_script.one_word(text, in_sight=self._sandbox.machine.isolation == "none")

    def _without_session(self, command: str, timeout_s: float) -> ToolResult:
        script = shell_script.alone(self._one_word(command))
        result = self._sandbox.exec(script, timeout_s=timeout_s, merge=True, max_output_bytes=2 * ENDS_BYTES)
        return ToolResult(
            readable(whole(result.stdout) if result.truncated else result.stdout),
            result.exit_code,
            timed_out=result.timed_out,
            seconds=result.seconds,
            tail="" if result.truncated else None,
            note=_WITHOUT_SESSION,
        )


def _both_ends(result: ExecResult) -> tuple[str, str | None]:
    """What is there to show of an output, and its end where that is not all."""
    out = result.stdout
    if len(out) <= 2 * ENDS_BYTES:
        return readable(whole(out) if result.truncated else out), "" if result.truncated else None
    return cut_apart(out[:ENDS_BYTES], out[-ENDS_BYTES:])
