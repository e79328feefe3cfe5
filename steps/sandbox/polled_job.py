"""A started job over short execs: output is fetched by offset; of a long output only both ends are kept.

One thread polls; others may send meanwhile.
"""

from __future__ import annotations

import threading
import time

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError
from swe_argo.steps.sandbox.both_ends import BothEnds
from swe_argo.steps.sandbox.job_input_script import (
    STDIN_BYTES,
    close_input_script,
    input_script,
    interrupt_script,
    kill_script,
)
from swe_argo.steps.sandbox.job_script import QUIET_TURN_S, mark, tail_script
from swe_argo.steps.sandbox.job_watch import PollResult
from swe_argo.steps.sandbox.jobs import FLUSH_S, Jobs
from swe_argo.steps.sandbox.protocol import FLOOD_BYTES, JobProgress
from swe_argo.steps.sandbox.transfer import write_file

_ATTEMPTS = 4
_MARGIN_BYTES = 4 << 20
"""Bytes kept beyond FLOOD_BYTES, so that a flood is noticed."""
_SOON_S = 0.1
_KILL_S = 15.0
"""Seconds that killing a job may take."""


class PolledJob:
    """A started job, see ``StartedJob``. ``note``: a file whose lines are returned with its end."""

    def __init__(
        self,
        jobs: Jobs,
        command: str,
        *,
        cwd: str,
        env: dict[str, str],
        ends_bytes: int,
        note: str | None = None,
        bell: str | None = None,
    ) -> None:
        self._jobs = jobs
        self._stem, self._watch = jobs.start(
            command, cwd, env, most_bytes=FLOOD_BYTES + _MARGIN_BYTES, most_at_once=2 * ends_bytes, bell=bell
        )
        self._ends_bytes = ends_bytes
        self._note = note
        self._kept = BothEnds(ends_bytes)
        self._offset = 0
        self._still_s = 0.0
        self._inputs = 0
        self._counting = threading.Lock()
        self._interrupts = 0
        self._end = mark(self._stem)
        self._has_end = False

    def poll(
        self,
        *,
        wait_s: float,
        quiet_s: float | None = None,
        kill: bool = False,
        until_output: bool = False,
        data: bytes = b"",
    ) -> tuple[JobProgress, PollResult]:
        """Poll the job, see ``StartedJob.poll``. Also return the last look's view of the machine."""
        until = time.monotonic() + wait_s
        self._still_s = 0.0
        before = self._input(data) if data else ("", b"")
        while True:
            left_s = max(_SOON_S if self._has_end else 0.0, until - time.monotonic())
            calm_s = None if quiet_s is None else max(0.01, quiet_s - self._still_s)
            seen = self._look(left_s, calm_s, until_output=until_output and not self._has_end, before=before)
            before = ("", b"")
            quiet = quiet_s is not None and self._still_s >= quiet_s - 0.01
            flooded = self._offset > FLOOD_BYTES
            # After the mark the end follows, unless a command has printed text that looks like the mark.
            over_at = until + (FLUSH_S if self._has_end else -0.01)
            enough = not self._has_end and (quiet or (until_output and len(self._kept) > 0))
            if seen.has_ended or flooded or enough or time.monotonic() >= over_at:
                break
        ended_here = not seen.has_ended and (flooded or (kill and not quiet))
        if ended_here:
            self._jobs.short_exec(kill_script(self._stem), wait_s=_KILL_S)
            seen = self._look(0.0, None)
            if not seen.has_ended:
                raise InfraError(FailureClass.EXEC, "a command did not end when it was killed")
        if seen.has_ended:
            self._fetch_rest(seen)
            self._jobs.forget(self._stem)
        output, tail = self._kept.take()
        progress = JobProgress(
            running=not seen.has_ended,
            output=output,
            tail=tail,
            exit_code=None if ended_here or not seen.has_ended else 137 if seen.rc is None else seen.rc,
            quiet=quiet and not seen.has_ended,
            timed_out=ended_here and not flooded,
            flooded=ended_here and flooded,
            note=seen.note,
        )
        return progress, seen

    def send(self, data: bytes) -> None:
        """Send input, see ``StartedJob.send``."""
        self._begin()
        script, stdin = self._input(data)
        for _ in range(_ATTEMPTS):
            code, _ = self._jobs.short_exec(script, stdin)
            if code == 0:
                return
        raise InfraError(FailureClass.EXEC, f"input of {len(data)} bytes does not arrive at a command")

    def close_input(self) -> None:
        """Close the input, see ``StartedJob.close_input``."""
        self._begin()
        self._jobs.short_exec(close_input_script(self._stem))

    def interrupt(self) -> None:
        """Interrupt the job, see ``StartedJob.interrupt``."""
        self._begin()
        self._interrupts += 1
        self._jobs.short_exec(interrupt_script(self._stem, self._interrupts))

    def _begin(self) -> None:
        if not self._watch.has_begun:
            self._look(0.0, None)

    def _input(self, data: bytes) -> tuple[str, bytes]:
        """Return the script that sends input, and the script's stdin."""
        with self._counting:
            self._inputs += 1
            number = self._inputs
        if len(data) > STDIN_BYTES:
            write_file(self._jobs.short_exec, f"{self._stem}.input{number}", data)
        return input_script(self._stem, number, data)

    def _look(
        self,
        wait_s: float,
        quiet_s: float | None,
        *,
        until_output: bool = False,
        before: tuple[str, bytes] = ("", b""),
    ) -> PollResult:
        at, chunk = self._offset, self._watch.chunk_bytes
        seen = self._watch.look(
            (self._offset, None),
            wait_s=wait_s,
            quiet_s=quiet_s,
            flood_bytes=FLOOD_BYTES,
            note=self._note,
            until_output=until_output,
            before=before,
        )
        self._take(seen.pieces[0])
        while len(self._kept) < 2 * self._ends_bytes and self._offset - at >= min(chunk, self._watch.chunk_bytes):
            at = self._offset
            more = self._watch.look((self._offset, None), wait_s=0.0, flood_bytes=FLOOD_BYTES).pieces[0]
            if not more:
                break
            self._take(more)
        if len(self._kept) >= 2 * self._ends_bytes and not self._has_end:
            self._skip_to_end()
        still_s = seen.still * min(QUIET_TURN_S, max(wait_s, 0.01))
        self._still_s = still_s if self._offset > at or seen.pieces[0] else self._still_s + still_s
        return seen

    def _take(self, piece: bytes) -> None:
        self._offset += len(piece)
        if not self._has_end:
            self._kept.add(piece)
            self._has_end = self._kept.cut_at(self._end)

    def _skip_to_end(self) -> None:
        """Fetch the last bytes of the present output, and skip the bytes between."""
        for _ in range(_ATTEMPTS):
            code, answer = self._jobs.short_exec(tail_script(self._stem, self._ends_bytes))
            head, _, body = answer.partition(b"\n")
            word, _, number = head.partition(b" ")
            size = int(number) if word == b"tail" and number.isdigit() and len(number) < 20 else -1
            if code == 0 and len(body) == min(size, self._ends_bytes):
                break
        else:
            raise InfraError(FailureClass.EXEC, "the end of a command's output does not arrive")
        missing = size - self._offset
        if missing > len(body):
            self._kept.skip()
            self._offset = size - len(body)
        self._take(body[len(body) - max(0, size - self._offset) :])

    def _fetch_rest(self, seen: PollResult) -> None:
        """Fetch the output still on its way when the job ended, up to the mark. A child may print on forever."""
        began = time.monotonic()
        until, last = began + FLUSH_S, began + _ATTEMPTS * FLUSH_S
        while not self._has_end and seen.rc is not None and time.monotonic() < min(until, last):
            time.sleep(0.02)
            if self._look(0.0, None).pieces[0]:
                until = time.monotonic() + FLUSH_S
