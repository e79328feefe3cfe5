"""Started jobs over a transport that runs a real shell, and over one that drops connections."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from swe_argo.steps.sandbox.job_watch import PollTimes
from swe_argo.steps.sandbox.jobs import Jobs
from swe_argo.steps.sandbox.polled_job import PolledJob
from swe_argo.steps.sandbox.protocol import JobProgress
from tests.steps.sandbox.test_jobs import Dropping, shell

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jobs run in sandboxes, which are Linux")


def start(jobs: Jobs, command: str, ends_bytes: int = 512 << 10) -> PolledJob:
    return PolledJob(jobs, command, cwd="/", env={}, ends_bytes=ends_bytes, note=None)


def end(job: PolledJob) -> JobProgress:
    progress, _ = job.poll(wait_s=30)
    assert not progress.running
    return progress


def printed(job: PolledJob, last: bytes) -> bytes:
    """What it has printed when its output ends so; it must not have ended by then."""
    output = b""
    while not output.endswith(last):
        progress, _ = job.poll(wait_s=0.1)
        assert progress.running
        output += progress.output
    return output


@pytest.mark.parametrize("seed", range(4))
def test_job_survives_drops(tmp_path: Path, seed: int) -> None:
    transport = Dropping(seed, 0.3)
    times = PollTimes(start_wait_s=0.05, poll_wait_s=0.1, chunk_bytes=20_000, attempts=20)
    job = start(Jobs(transport, root=str(tmp_path / "jobs"), poll_times=times), (
        f"echo started >>{tmp_path}/starts; seq 5000; while read -r line; do echo \"got $line\"; done; echo end; exit 3"
    ))  # fmt: skip
    output = b""
    for word in (b"one", b"two", b"three"):
        job.send(word + b"\n")
        while b"got " + word not in output:
            progress, _ = job.poll(wait_s=0.3)
            output += progress.output
    job.close_input()
    last = end(job)
    assert (tmp_path / "starts").read_text() == "started\n"
    expected = "".join(f"{i}\n" for i in range(1, 5001)) + "got one\ngot two\ngot three\nend\n"
    assert output + last.output == expected.encode()
    assert (last.exit_code, last.tail) == (3, None)
    assert transport.dropped  # a machine that is busy makes fewer looks


def test_early_input_arrives(tmp_path: Path) -> None:
    jobs = Jobs(shell, root=str(tmp_path / "jobs"))
    for _ in range(10):
        job = start(jobs, "cat; trap 'exit 3' INT; echo trapped; while :; do sleep 0.05; done")
        job.send(b"hello\n")
        job.close_input()
        assert printed(job, b"trapped\n") == b"hello\ntrapped\n"
        job.interrupt()
        assert end(job).exit_code == 3


def test_inputs_arrive_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "bin" / "cat"
    slow.parent.mkdir()
    slow.write_text('#!/bin/sh\n[ $# = 0 ] || sleep 0.5\nexec /bin/cat "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    job = start(Jobs(shell, root=str(tmp_path / "jobs")), "cat")
    long = b"long " * 8000
    for data in (b"first ", long, b"third ", long, b"last"):
        job.send(data)
    job.close_input()
    assert end(job).output == b"first " + long + b"third " + long + b"last"


def test_false_end_marker_is_ignored(tmp_path: Path) -> None:
    words = f"f=$(echo {tmp_path}/jobs/*.lock); f=${{f##*/}}; echo before; printf '<end %s>' ${{f%.lock}}; sleep 60"
    job = start(Jobs(shell, root=str(tmp_path / "jobs")), words)
    assert printed(job, b"before\n") == b"before\n"
    progress, _ = job.poll(wait_s=0.1, kill=True)
    assert (progress.running, progress.timed_out) == (False, True)


def test_short_job_takes_one_exec(tmp_path: Path) -> None:
    scripts: list[str] = []

    def counting(script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> tuple[int, bytes]:
        scripts.append(script)
        return shell(script, stdin)

    jobs, exec_counts = Jobs(counting, root=str(tmp_path / "jobs")), []
    for _ in range(20):
        end(start(jobs, "echo hello"))
        exec_counts.append(len(scripts))
        scripts.clear()
    assert min(exec_counts) == 1, exec_counts  # what is printed at the very end may come a moment after the end


def test_only_ends_of_output_are_fetched(tmp_path: Path) -> None:
    fetched: list[int] = []

    def counting(script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> tuple[int, bytes]:
        code, answer = shell(script, stdin)
        fetched.append(len(answer))
        return code, answer

    progress = end(start(Jobs(counting, root=str(tmp_path / "jobs")), "head -c 100000000 /dev/zero; echo last", 1000))
    assert progress.output == bytes(1000)
    assert (progress.tail or b"").endswith(b"\0last\n")
    assert sum(fetched) < 10_000


def test_finished_jobs_are_cleaned_up(tmp_path: Path) -> None:
    jobs = Jobs(shell, root=str(tmp_path / "jobs"))
    for _ in range(4):
        job = start(jobs, "read -r line; echo $line")
        job.poll(wait_s=0.1)
        job.send(b"line\n")
        end(job)
    time.sleep(0.2)
    suffixes = [path.suffix for path in (tmp_path / "jobs").iterdir()]
    assert suffixes.count(".lock") == 4  # a start that arrives late must still find it
    assert len(suffixes) - 4 <= 2 * 9


def test_killed_leader_keeps_its_output(tmp_path: Path) -> None:
    wait = f"until [ -s {tmp_path}/jobs/*.out ]; do sleep 0.05; done"
    kill = f"echo partial; {wait}; kill -9 $(cat {tmp_path}/jobs/*.lock)"
    job = start(Jobs(shell, root=str(tmp_path / "jobs")), kill)
    progress, state = job.poll(wait_s=30)
    assert (state.rc, progress.running, progress.exit_code, progress.output) == (None, False, 137, b"partial\n")
