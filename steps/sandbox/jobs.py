"""Commands as detached jobs over short execs: a dropped connection neither ends, repeats nor truncates a command.

The sandbox needs Linux's /proc and sh, bash, base64, timeout, setsid, sleep, tail, head, wc, cat, mkfifo, mkdir, mv,
rm, env.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field, replace

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError, StepError
from swe_argo.steps.sandbox.job_script import INLINE_BYTES, ScriptOptions, mark, start_script, stream_script
from swe_argo.steps.sandbox.job_watch import JobWatch, PollResult, PollTimes
from swe_argo.steps.sandbox.protocol import ExecResult
from swe_argo.steps.sandbox.short_exec import ShortExec, StreamExec
from swe_argo.steps.sandbox.transfer import write_file

FLUSH_S = 3.0
"""Seconds that an ended job's output may take to reach its file before its copier counts as dead."""

LISTEN_S = 20.0
"""Seconds to read a command's own stream; then the job is polled, since streams are lost with connections."""
_BEHIND_BYTES = 100
_LATE_S = 60.0
"""Seconds by which a job may end later than its timeout."""
_FETCH_S = 900.0
"""Seconds that its output may take to arrive after that."""


@dataclass(frozen=True)
class Job:
    """A command to run, with the number of bytes wanted of each stream."""

    command: str
    timeout_s: float
    cwd: str
    env: dict[str, str] = field(default_factory=dict)
    merge: bool = False
    max_output_bytes: int = 64 << 20


@dataclass(frozen=True)
class JobResult:
    """The result of a job.

    ``is_lost``: its leader vanished without an exit code; everything was killed, or the machine was replaced.
    ``oom_kills``: processes that the machine's memory limit has killed in its life.
    """

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    timed_out: bool
    truncated: bool
    seconds: float
    oom_kills: int
    is_lost: bool

    def require_end(self) -> ExecResult:
        """Return the command's result for a machine that still lives: there, a lost leader was killed (137)."""
        return ExecResult(
            exit_code=137 if self.is_lost else self.exit_code,
            stdout=self.stdout,
            stderr=self.stderr,
            timed_out=self.timed_out,
            truncated=self.truncated,
            seconds=self.seconds,
        )


class _Stream:
    """The bytes that have arrived of one stream, and whether it is complete."""

    def __init__(self, limit: int, end: bytes) -> None:
        self.data = bytearray()
        self.limit = limit
        self.end = end
        self.complete = False
        self.behind = bytearray()
        """The bytes after the end mark."""

    def take(self, piece: bytes) -> None:
        if self.complete:
            self.behind += piece[: _BEHIND_BYTES - len(self.behind)]
            return
        searched = max(0, len(self.data) - len(self.end))
        self.data += piece
        at = self.data.find(self.end, searched)
        if at >= 0:
            self.behind += self.data[at + len(self.end) :][:_BEHIND_BYTES]
            del self.data[at:]
        self.complete = at >= 0 or len(self.data) >= self.limit + len(self.end)

    @property
    def is_full(self) -> bool:
        """Whether it holds more than is wanted: a mark after that does not count."""
        return len(self.data) >= self.limit + len(self.end)

    @property
    def at(self) -> int | None:
        """The offset from which bytes are still wanted, or None."""
        return None if self.complete else len(self.data)

    def cut(self) -> tuple[bytes, bool]:
        return bytes(self.data[: self.limit]), len(self.data) > self.limit


class Jobs:
    """Runs commands in one sandbox. ``root`` is a folder there that neither tests nor diffs look at. Thread-safe."""

    def __init__(
        self,
        short_exec: ShortExec,
        *,
        root: str,
        tempo: PollTimes | None = None,
        stream_exec: StreamExec | None = None,
    ) -> None:
        self.short_exec = short_exec
        self._stream_exec = stream_exec
        self._root = root
        self._tempo = tempo or PollTimes()
        self._known: list[str] = []

    def run(self, job: Job) -> JobResult:
        """Run a command to its end.

        Raises InfraError (EXEC) if the sandbox does not run jobs, and the transport's errors; the error's ``output``
        holds the stdout so far.
        """
        stem = self._stem()
        end = mark(stem)
        streams = (_Stream(job.max_output_bytes, end), _Stream(job.max_output_bytes, end))
        try:
            return self._watched(job, stem, streams)
        except StepError as error:
            error.output = streams[0].cut()[0]
            raise

    def start(
        self, command: str, cwd: str, env: dict[str, str], *, most_bytes: int, most_at_once: int, bell: str | None
    ) -> tuple[str, JobWatch]:
        """Start a job with open input, which only ``kill_script`` ends. Return its stem and its watch.

        The machine keeps ``most_bytes`` of its output, and one poll returns at most ``most_at_once``. ``bell`` names
        the variable that gives the command the path of the wake-up FIFO.
        """
        times = self._tempo
        times = replace(
            times,
            chunk_bytes=min(times.chunk_bytes, most_at_once),
            most_bytes=min(times.most_bytes, most_at_once),
        )
        stem = self._stem()
        env = env | {bell: f"{stem}.bell"} if bell else env
        job = Job(command, 0.0, cwd, env, merge=True, max_output_bytes=most_bytes)
        text, options = self._prepare(stem, job)
        return stem, JobWatch(self.short_exec, stem, start_script(stem, text, options, input_open=True), times)

    def forget(self, stem: str) -> None:
        """Schedule the files of an ended job for removal."""
        self._known.append(stem)

    def _watched(self, job: Job, stem: str, streams: tuple[_Stream, _Stream]) -> JobResult:
        began = time.monotonic()
        streams[1].complete = job.merge
        command, options = self._prepare(stem, job)
        if self._stream_exec is not None:
            script = stream_script(stem, command, options)
            if (end := _listen(self._stream_exec(script), streams)) is not None:
                self.forget(stem)
                return _result(end, streams, time.monotonic() - began)
        watch = JobWatch(self.short_exec, stem, start_script(stem, command, options), self._tempo)
        wait_s, ended_at = math.inf, 0.0
        while True:
            poll = watch.look((streams[0].at, streams[1].at), wait_s=wait_s)
            for stream, piece in zip(streams, poll.pieces, strict=True):
                if not stream.complete:
                    stream.take(piece)
            if poll.has_ended:
                wait_s, ended_at = 0.0, ended_at or time.monotonic()
                if any(poll.pieces):
                    ended_at = time.monotonic()
                elif poll.rc is None or time.monotonic() - ended_at > FLUSH_S:
                    break
                else:
                    time.sleep(0.02)
                if streams[0].complete and streams[1].complete:
                    break
            patience_s = self._tempo.poll_wait_s + (_FETCH_S if poll.has_ended else _LATE_S)
            if time.monotonic() - began > job.timeout_s + patience_s:
                raise InfraError(FailureClass.EXEC, f"a command did not end at its timeout of {job.timeout_s:g} s")
        self.forget(stem)
        return _result(poll, streams, time.monotonic() - began)

    def _stem(self) -> str:
        return f"{self._root}/{uuid.uuid4().hex}"

    def _prepare(self, stem: str, job: Job) -> tuple[bytes, ScriptOptions]:
        """Return the command, uploaded already if it is long, and the options of its start scripts."""
        command = job.command.encode(errors="surrogateescape")
        if len(command) > INLINE_BYTES:
            write_file(self.short_exec, f"{stem}.cmd", command)
        forget, self._known = self._known, []
        return command, ScriptOptions(
            timeout_s=job.timeout_s,
            cwd=job.cwd,
            env=job.env,
            merge=job.merge,
            most_bytes=job.max_output_bytes,
            forget=forget,
        )


def _listen(pieces: Generator[tuple[int, bytes], None, None], streams: tuple[_Stream, _Stream]) -> PollResult | None:
    """Read a job's streamed output and its end. Return None if the end did not arrive this way."""
    until = time.monotonic() + LISTEN_S
    with closing(pieces):
        for number, piece in pieces:
            streams[number].take(piece)
            if streams[0].complete and streams[1].complete and (end := _end_behind(streams[0].behind)):
                return end
            if time.monotonic() > until or any(stream.is_full for stream in streams):
                break
    for stream in streams:
        stream.behind.clear()
    return None


def _end_behind(line: bytearray) -> PollResult | None:
    """Parse the leader's line after the output; return None if another process wrote it."""
    words = line.decode("ascii", "replace").split()
    if not line.endswith(b"\n") or len(words) != 3 or not (words[0].isdigit() and words[2].isdigit()):
        return None
    return PollResult(
        claimed=True,
        pid=True,
        alive=False,
        rc=int(words[0]),
        late=words[1] == "yes",
        oom_kills=int(words[2]),
        pieces=(b"", b""),
    )


def _result(poll: PollResult, streams: tuple[_Stream, _Stream], seconds: float) -> JobResult:
    (out, out_cut), (err, err_cut) = streams[0].cut(), streams[1].cut()
    return JobResult(
        exit_code=None if poll.late else poll.rc,
        stdout=out,
        stderr=err,
        timed_out=poll.late,
        truncated=out_cut or err_cut,
        seconds=seconds,
        oom_kills=poll.oom_kills,
        is_lost=poll.rc is None,
    )
