"""Polling of a detached job over short execs: a failed poll is retried, and the start script sent again if needed."""

from __future__ import annotations

import time
from dataclasses import dataclass

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError
from swe_argo.steps.sandbox.job_script import frames, poll_script
from swe_argo.steps.sandbox.short_exec import ShortExec

_LEAST_BYTES = 64 << 10
"""An answer of this size gets through any transport."""

_FAST_BYTES_S = 10e6
"""Bytes per second from which a transport is given larger chunks."""


@dataclass(frozen=True)
class PollTimes:
    """Polling parameters of a transport: seconds a start and a poll wait inside the sandbox, and bytes per exec.

    An incomplete answer is requested again at half the size; after a fast one the size doubles, up to ``most_bytes``.
    """

    start_wait_s: float = 2.0
    poll_wait_s: float = 20.0
    chunk_bytes: int = 1 << 20
    most_bytes: int = 16 << 20
    attempts: int = 6


@dataclass(frozen=True)
class PollResult:
    """The result of one poll."""

    claimed: bool
    pid: bool
    alive: bool
    rc: int | None
    late: bool
    oom_kills: int
    pieces: tuple[bytes, bytes]
    still: int = 0
    """The number of turns without output, if measured."""
    note: tuple[str, ...] = ()

    @property
    def has_ended(self) -> bool:
        """Whether the job ended, or its leader is gone."""
        return self.rc is not None or (self.pid and not self.alive)


class JobWatch:
    """A poller of one job. ``start`` is the script that starts the job; the first poll sends it."""

    def __init__(self, short_exec: ShortExec, stem: str, start: str, times: PollTimes) -> None:
        self.chunk_bytes = times.chunk_bytes
        self.has_begun = False
        self._exec = short_exec
        self._stem = stem
        self._start = self._script = start
        self._times = times
        self._most_wait_s = times.start_wait_s

    def look(
        self,
        offsets: tuple[int | None, int | None],
        *,
        wait_s: float,
        quiet_s: float | None = None,
        flood_bytes: int | None = None,
        note: str | None = None,
        until_output: bool = False,
        before: tuple[str, bytes] = ("", b""),
    ) -> PollResult:
        """Poll the job, see ``poll_script``; may wait less than ``wait_s``. Raises InfraError (EXEC) if no job starts.

        ``before``: a script that runs first, safe to repeat, and its stdin.
        """
        faults = 0
        while True:
            wait_s = min(wait_s, self._most_wait_s)
            polled_at = time.monotonic()
            poll = poll_script(
                self._stem,
                offsets,
                wait_s=wait_s,
                chunk_bytes=self.chunk_bytes,
                quiet_s=quiet_s,
                flood_bytes=flood_bytes,
                note=note,
                until_output=until_output,
            )
            code, answer = self._exec(self._script + before[0] + poll, before[1], wait_s=wait_s)
            result = _parse(code, answer, self._stem)
            if result is not None and result.pid:
                break
            faults += 1
            self.chunk_bytes = min(self.chunk_bytes, max(self.chunk_bytes // 2, _LEAST_BYTES))
            if faults > self._times.attempts:
                detail = f"exit code {code}, answer {answer[:300]!r}"
                raise InfraError(FailureClass.EXEC, "the sandbox does not run commands", detail=detail)
            time.sleep(min(0.05 * 2**faults, 1.0))
            self._script = "" if result and result.claimed else self._start
        self.has_begun = True
        self._script, self._most_wait_s = "", self._times.poll_wait_s
        size = sum(map(len, result.pieces))
        if size > max(self.chunk_bytes // 2, (time.monotonic() - polled_at) * _FAST_BYTES_S):
            self.chunk_bytes = max(self.chunk_bytes, min(2 * self.chunk_bytes, self._times.most_bytes))
        return result


def _parse(code: int, answer: bytes, stem: str) -> PollResult | None:
    """Parse the answer of a poll; return None if it is incomplete."""
    head, _, body = answer.partition(b"\n")
    words = head.decode("ascii", "replace").split()
    note = []
    while body.startswith(b"note "):
        line, _, body = body.partition(b"\n")
        note.append(line[5:].decode(errors="replace"))
    before, between, behind = frames(stem)
    if code != 0 or len(words) != 8 or words[0] != "job" or not body.startswith(before) or not body.endswith(behind):
        return None
    out, there, err = body[len(before) : -len(behind)].partition(between)
    if not there:
        return None
    _, claimed, pid, alive, rc, late, oom, still = words
    if not (oom.isdigit() and (rc == "-" or rc.isdigit()) and len(rc + oom) < 40):
        return None  # not written by our script
    return PollResult(
        claimed=claimed == "1",
        pid=pid != "-",
        alive=alive == "1",
        rc=None if rc == "-" else int(rc),
        late=late == "yes",
        oom_kills=int(oom),
        pieces=(out, err),
        still=int(still) if still.isdigit() else 0,
        note=tuple(note),
    )
