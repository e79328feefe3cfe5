"""A command as a detached job over short execs: a dropped connection neither ends it, nor repeats it, nor loses output.

The sandbox needs Linux's /proc and sh, bash, base64, timeout, setsid, sleep, tail, head, wc, cat,
mkfifo, mkdir, mv, rm.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Protocol

from steps.contracts.data import FailureClass
from steps.errors import InfraError
from steps.sandbox.job_script import INLINE_BYTES, mark, poll_script, start_script
from steps.sandbox.transfer import write_file

_FLUSH_S = 3.0
"""How long an ended job's output may take to reach its file before whoever copied it is taken for dead."""


class ShortExec(Protocol):
    """The transport: runs ``script`` by /bin/sh as root and gives its exit code and its stdout.

    ``wait_s`` is how long the script itself may take its time. Every script given to it may run twice: repeating one
    whose connection was lost is the transport's work. Raises InfraError when the machine or the way to it is gone.
    """

    def __call__(self, script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> tuple[int, bytes]:
        """Run one script."""


@dataclass(frozen=True)
class Job:
    """What to run, and how many bytes of each stream are wanted."""

    command: str
    timeout_s: float
    cwd: str
    env: dict[str, str] = field(default_factory=dict)
    merge: bool = False
    max_output_bytes: int = 64 << 20


@dataclass(frozen=True)
class JobResult:
    """What came of a job.

    ``lost``: its leader vanished without a word; somebody killed everything, or the machine changed underneath.
    ``oom_kills``: processes that the machine's memory limit has killed in its life.
    """

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    timed_out: bool
    truncated: bool
    seconds: float
    oom_kills: int
    lost: bool


@dataclass(frozen=True)
class Tempo:
    """How a job is watched: seconds a start and a poll wait inside the sandbox, bytes of a stream one exec brings."""

    start_wait_s: float = 2.0
    poll_wait_s: float = 20.0
    chunk_bytes: int = 1 << 20
    attempts: int = 6


class _Stream:
    """What has arrived of one stream, and whether that is all of it."""

    def __init__(self, limit: int, end: bytes) -> None:
        self.data = bytearray()
        self.limit = limit
        self.end = end
        self.complete = False

    def take(self, piece: bytes) -> None:
        searched = max(0, len(self.data) - len(self.end))
        self.data += piece
        at = self.data.find(self.end, searched)
        if at >= 0:
            del self.data[at:]
        self.complete = at >= 0 or len(self.data) >= self.limit + len(self.end)

    def cut(self) -> tuple[bytes, bool]:
        return bytes(self.data[: self.limit]), len(self.data) > self.limit


@dataclass(frozen=True)
class _Seen:
    """The answer of one poll."""

    claimed: bool
    pid: bool
    alive: bool
    rc: int | None
    own: bool
    oom_kills: int
    pieces: tuple[bytes, bytes]

    @property
    def ended(self) -> bool:
        return self.rc is not None or (self.pid and not self.alive)


class Jobs:
    """Runs commands in one sandbox. ``root`` is a folder there that neither tests nor diffs look at. Thread-safe."""

    def __init__(self, short_exec: ShortExec, *, root: str, tempo: Tempo | None = None) -> None:
        self._exec = short_exec
        self._root = root
        self._tempo = tempo or Tempo()
        self._known: list[str] = []

    def run(self, job: Job) -> JobResult:
        """Run a command to its end.

        Raises InfraError (EXEC) when the sandbox does not run jobs, and whatever the transport raises.
        """
        began = time.monotonic()
        folder = f"{self._root}/{uuid.uuid4().hex}"
        start = self._start(folder, job)
        end = mark(folder)
        streams = (_Stream(job.max_output_bytes, end), _Stream(job.max_output_bytes, end))
        streams[1].complete = job.merge
        script, wait_s, faults, ended_at = start, self._tempo.start_wait_s, 0, 0.0
        while True:
            seen, said = self._look(folder, streams, script, wait_s)
            if seen is None or not seen.pid:
                faults += 1
                if faults > self._tempo.attempts:
                    raise InfraError(FailureClass.EXEC, "the sandbox does not run commands", detail=said)
                time.sleep(min(0.05 * 2**faults, 1.0))
                script = "" if seen and seen.claimed else start
                continue
            script, wait_s, faults = "", self._tempo.poll_wait_s, 0
            for stream, piece in zip(streams, seen.pieces, strict=True):
                if not stream.complete:
                    stream.take(piece)
            if seen.ended:
                wait_s, ended_at = 0.0, ended_at or time.monotonic()
                if any(seen.pieces):
                    ended_at = time.monotonic()
                elif seen.rc is None or time.monotonic() - ended_at > _FLUSH_S:
                    break
                else:
                    time.sleep(0.02)
                if streams[0].complete and streams[1].complete:
                    break
            elif time.monotonic() - began > job.timeout_s + self._tempo.poll_wait_s + 60:
                raise InfraError(FailureClass.EXEC, f"a command did not end at its timeout of {job.timeout_s:g} s")
        self._known.append(folder)
        return _result(seen, streams, time.monotonic() - began, job.timeout_s)

    def _start(self, folder: str, job: Job) -> str:
        command = job.command.encode(errors="surrogateescape")
        if len(command) > INLINE_BYTES:
            write_file(self._exec, f"{folder}/cmd", command)
        forget, self._known = self._known, []
        return start_script(
            folder, command, timeout_s=job.timeout_s, cwd=job.cwd, env=job.env, merge=job.merge, forget=forget
        )

    def _look(
        self, folder: str, streams: tuple[_Stream, _Stream], script: str, wait_s: float
    ) -> tuple[_Seen | None, str]:
        have = (len(streams[0].data), len(streams[1].data))
        chunk = self._tempo.chunk_bytes
        poll = poll_script(folder, have, wait_s=wait_s, chunk_bytes=chunk)
        code, answer = self._exec(script + poll, wait_s=wait_s)
        return _parse(code, answer, have, chunk), f"exit code {code}, answer {answer[:300]!r}"


def _parse(code: int, answer: bytes, have: tuple[int, int], chunk: int) -> _Seen | None:
    """The answer of a poll; None when it did not arrive whole."""
    head, newline, body = answer.partition(b"\n")
    words = head.decode("ascii", "replace").split()
    if code != 0 or not newline or len(words) != 9 or words[0] != "job":
        return None
    _, claimed, pid, alive, rc, own, size_out, size_err, oom = words
    n_out = min(max(0, int(size_out) - have[0]), chunk)
    n_err = min(max(0, int(size_err) - have[1]), chunk)
    if len(body) != n_out + n_err:
        return None
    return _Seen(
        claimed=claimed == "1",
        pid=pid != "-",
        alive=alive == "1",
        rc=None if rc == "-" else int(rc),
        own=own == "yes",
        oom_kills=int(oom),
        pieces=(body[:n_out], body[n_out:]),
    )


def _result(seen: _Seen, streams: tuple[_Stream, _Stream], seconds: float, timeout_s: float) -> JobResult:
    # 124, or 137 after the signal that cannot be refused, is a timeout only if the command left no code of its own.
    timed_out = seen.rc in {124, 137} and not seen.own and seconds >= timeout_s
    (out, out_cut), (err, err_cut) = streams[0].cut(), streams[1].cut()
    return JobResult(
        exit_code=None if timed_out else seen.rc,
        stdout=out,
        stderr=err,
        timed_out=timed_out,
        truncated=out_cut or err_cut,
        seconds=seconds,
        oom_kills=seen.oom_kills,
        lost=seen.rc is None,
    )
