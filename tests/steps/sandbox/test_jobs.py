"""Detached and started jobs over a transport that runs a real shell, and over one that drops connections."""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError, ResourceError
from swe_argo.steps.sandbox import job_watch, polled_job
from swe_argo.steps.sandbox.job_script import Job
from swe_argo.steps.sandbox.job_watch import PollTimes
from swe_argo.steps.sandbox.jobs import JobResult, Jobs
from swe_argo.steps.sandbox.polled_job import PolledJob
from swe_argo.steps.sandbox.short_exec import read_file, write_file
from tests.steps.sandbox.started_jobs import end, printed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jobs run in sandboxes, which are Linux")
Answer = tuple[int, bytes]


def shell(script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> Answer:
    result = subprocess.run(["/bin/sh", "-c", script], input=stdin, stdout=subprocess.PIPE, check=False)
    return result.returncode, result.stdout


class Recorder:
    """A shell transport that records scripts and answers; ``change`` alters what arrives of an answer."""

    def __init__(self, change: Callable[[bytes], bytes] = lambda answer: answer, prefix: str = "") -> None:
        self.scripts: list[str] = []
        self.answers: list[bytes] = []
        self._change, self._prefix = change, prefix

    def __call__(self, script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> Answer:
        self.scripts.append(script)
        code, answer = shell(self._prefix + script, stdin)
        self.answers.append(answer)
        return code, self._change(answer)


class Dropping:
    """A transport whose connections drop before or after the script ran, repeated as a transport must."""

    def __init__(self, seed: int, rate: float) -> None:
        self.random = random.Random(seed)
        self.rate = rate
        self.dropped = 0

    def __call__(self, script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> Answer:
        while True:
            if self.random.random() < self.rate:
                self.dropped += 1
                continue
            code, out = shell(script, stdin, wait_s=wait_s)
            if self.random.random() < self.rate:
                self.dropped += 1
                if self.random.random() < 0.5:
                    return code, out[: self.random.randrange(len(out) + 1)]  # cut unnoticed
                continue
            return code, out


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


@pytest.fixture
def jobs(root: Path) -> Jobs:
    return Jobs(shell, root=str(root))


def go(jobs: Jobs, command: str, timeout_s: float = 20, merge: bool = False, limit: int = 64 << 20) -> JobResult:
    return jobs.run(Job(command, timeout_s, "/", merge=merge, max_output_bytes=limit))


def count_up(last: int) -> bytes:
    return "".join(f"{number}\n" for number in range(1, last + 1)).encode()


def test_timeout_ends_the_whole_session(jobs: Jobs, tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    beat.touch()
    for timeout_s in (0.5, 5, 50):  # a busy machine may need longer to begin
        beats = f"set -m; (while :; do echo x >>{beat}; sleep 0.05; done) & set +m; sleep 1000"
        assert go(jobs, beats, timeout_s).timed_out
        if size := beat.stat().st_size:
            break
    assert size > 0
    time.sleep(0.3)
    assert beat.stat().st_size == size


def test_command_may_handle_its_timeout(jobs: Jobs) -> None:
    for timeout_s in (0.4, 4, 40):  # a busy machine may need longer to begin
        result = go(jobs, "trap 'echo goodbye; exit 0' TERM; while :; do sleep 0.05; done", timeout_s)
        assert (result.timed_out, result.exit_code) == (True, None)
        if result.stdout:
            break
    assert result.stdout == b"goodbye\n"


def test_late_child_output_is_dropped(jobs: Jobs, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    result = go(jobs, f"(cat {gate}; echo late) & echo in time")
    gate.write_text("the child still waits")
    assert (result.stdout, result.truncated) == (b"in time\n", False)


def test_command_environment_is_separate(jobs: Jobs) -> None:
    result = jobs.run(Job('echo "$PATH $d"', 5, "/", {"PATH": "/nowhere", "d": "x"}))
    assert (result.exit_code, result.stdout) == (0, b"/nowhere x\n")
    result = jobs.run(Job("true", 5, "/no/such/folder"))
    assert (result.exit_code, b"/no/such/folder" in result.stderr) == (126, True)
    assert go(jobs, b"printf '\xff\xc3(' | wc -c".decode(errors="surrogateescape")).stdout == b"3\n"


def test_finished_jobs_are_cleaned_up(jobs: Jobs, root: Path) -> None:
    for _ in range(4):
        go(jobs, "true")
        job = start(jobs, "read -r line; echo $line")
        job.poll(wait_s=0.1)
        job.send(b"line\n")
        end(job)
    time.sleep(0.2)
    suffixes = [path.suffix for path in root.iterdir()]
    assert suffixes.count(".lock") == 8  # a start that arrives late must still find it
    assert len(suffixes) - 8 <= 2 * 9


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("command", ["echo out; echo err >&2", "head -c 300k /dev/zero", "kill $$"])
def test_ended_job_leaves_no_process(jobs: Jobs, tmp_path: Path, command: str, merge: bool) -> None:
    go(jobs, command, merge=merge, limit=100 << 10)
    while processes_with_files_in(str(tmp_path)):
        time.sleep(0.05)


def processes_with_files_in(folder: str) -> list[str]:
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            targets = [str(link.readlink()) for link in (entry / "fd").iterdir()]
            if entry.name != str(os.getpid()) and any(folder in target for target in targets):
                pids.append(entry.name)
    return pids


def test_late_start_repeats_no_command(root: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    jobs = Jobs(recorder, root=str(root))
    for word in ("first", "second", "third"):
        go(jobs, f"echo {word} >>{tmp_path}/ran")
    shell(recorder.scripts[0])
    time.sleep(0.3)
    assert (tmp_path / "ran").read_text() == "first\nsecond\nthird\n"


def test_pkill_spares_the_supervisor(jobs: Jobs) -> None:
    if not shutil.which("pkill"):
        pytest.skip("no pkill")
    result = go(jobs, f"pkill -f {secrets.token_hex(8)}")
    assert (result.exit_code, result.is_lost) == (1, False)


def test_chunk_size_follows_the_connection(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_watch, "_FAST_BYTES_S", 1.0)  # this machine may be slow with other work
    cutting = Recorder(lambda answer: answer[:300_000])
    jobs = Jobs(cutting, root=str(root), poll_times=PollTimes(chunk_bytes=4 << 20, most_bytes=4 << 20))
    result = go(jobs, "head -c 1000000 /dev/zero; head -c 500000 /dev/zero >&2")
    assert (len(result.stdout), len(result.stderr), result.exit_code) == (1_000_000, 500_000, 0)
    assert max(map(len, cutting.answers)) > 300_000
    fast = Recorder()
    jobs = Jobs(fast, root=str(root), poll_times=PollTimes(chunk_bytes=1 << 20))
    assert len(go(jobs, "head -c 30000000 /dev/zero").stdout) == 30_000_000
    assert len(fast.answers) < 12


def test_unwritable_root_is_infra_error() -> None:
    jobs = Jobs(shell, root="/proc/nowhere", poll_times=PollTimes(start_wait_s=0, attempts=2))
    with pytest.raises(InfraError, match="does not run commands") as caught:
        go(jobs, "true")
    assert caught.value.failure_class is FailureClass.EXEC


DROPS = PollTimes(start_wait_s=0.05, poll_wait_s=0.1, chunk_bytes=20_000, attempts=20)


@pytest.mark.parametrize("seed", range(2))
def test_command_survives_drops(root: Path, tmp_path: Path, seed: int) -> None:
    transport = Dropping(seed, 0.3)
    jobs = Jobs(transport, root=str(root), poll_times=DROPS)
    result = go(jobs, f"echo started >>{tmp_path}/starts; seq 50000; sleep 0.3; echo end >&2; exit 3")
    assert (tmp_path / "starts").read_text() == "started\n"
    assert result.stdout == count_up(50000)
    assert (result.stderr, result.exit_code, result.truncated) == (b"end\n", 3, False)
    assert transport.dropped  # a machine that is busy makes fewer looks


def test_waiting_starts_no_processes(root: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    for name in ("timeout", "head", "sleep"):
        wrapper = tmp_path / "bin" / name
        wrapper.parent.mkdir(exist_ok=True)
        wrapper.write_text(f'#!/bin/sh\necho {name} >>{log}\nexec {shutil.which(name)} "$@"\n')
        wrapper.chmod(0o755)
    recorder = Recorder(prefix=f"PATH={tmp_path}/bin:$PATH; ")
    jobs = Jobs(recorder, root=str(root), poll_times=PollTimes(start_wait_s=1, poll_wait_s=30))
    assert go(jobs, "sleep 3").exit_code == 0
    began = log.read_text().split()
    assert (began.count("timeout"), began.count("sleep")) == (1, 1), "those of the job itself"
    assert began.count("head") <= len(recorder.scripts)


# -- files


def test_file_survives_drops(tmp_path: Path) -> None:
    transport = Dropping(7, 0.2)
    data = hashlib.shake_256(b"seed").digest(300_000)
    target = tmp_path / "new" / "file"
    write_file(transport, str(target), data, piece_bytes=40_000)
    assert target.read_bytes() == data
    assert list(target.parent.iterdir()) == [target]
    assert transport.dropped > 2
    assert read_file(shell, str(target), piece_bytes=99_999) == data
    for seed in range(10):
        write_file(Dropping(seed, 0.3), str(tmp_path / "small" / str(seed)), b"small")
    assert {file.read_bytes() for file in (tmp_path / "small").iterdir()} == {b"small"}
    assert len(list((tmp_path / "small").iterdir())) == 10


def test_small_file_takes_one_exec(tmp_path: Path) -> None:
    scripts: list[str] = []

    def lose_first_answer(script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> Answer:
        scripts.append(script)
        answer = shell(script, stdin)
        return answer if len(scripts) > 1 else (1, b"")

    target = tmp_path / "new" / "file"
    write_file(lose_first_answer, str(target), b"data")
    assert len(scripts) == 2
    write_file(lose_first_answer, str(target), b"other")
    assert len(scripts) == 3
    assert target.read_bytes() == b"other"
    assert list(target.parent.iterdir()) == [target]


def test_rewritten_file_keeps_its_mode(tmp_path: Path) -> None:
    script, link = tmp_path / "script", tmp_path / "link"
    script.write_text("old")
    script.chmod(0o755)
    link.symlink_to("script")
    write_file(shell, str(link), b"new")
    assert script.read_bytes() == b"new"
    assert script.stat().st_mode & 0o777 == 0o755
    assert link.is_symlink()


def test_unwritable_path_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path, error in (
        (tmp_path, IsADirectoryError),
        (tmp_path / "file" / "below", NotADirectoryError),
        (Path("/proc/uptime"), PermissionError),
    ):
        with pytest.raises(error):
            write_file(shell, str(path), b"")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.getuid() != 0:
        pytest.skip("only root can mount a small disk")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield tmp_path
    subprocess.run(["umount", tmp_path], check=True)


def test_full_disk_is_a_resource_error(small_disk: Path) -> None:
    with pytest.raises(ResourceError) as caught:
        write_file(shell, str(small_disk / "file"), b"x" * (2 << 20))
    assert caught.value.failure_class is FailureClass.OUT_OF_DISK


# -- started jobs


def start(jobs: Jobs, command: str, ends_bytes: int = 512 << 10) -> PolledJob:
    return PolledJob(jobs, command, cwd="/", env={}, ends_bytes=ends_bytes, note=None)


@pytest.mark.parametrize("seed", range(2))
def test_started_job_survives_drops(root: Path, tmp_path: Path, seed: int) -> None:
    transport = Dropping(seed, 0.3)
    reads = 'while read -r line; do echo "got $line"; done; echo end; exit 3'
    job = start(
        Jobs(transport, root=str(root), poll_times=DROPS), f"echo started >>{tmp_path}/starts; seq 5000; {reads}"
    )
    output = b""
    for word in (b"one", b"two", b"three"):
        job.send(word + b"\n")
        while b"got " + word not in output:
            progress = job.poll(wait_s=0.3)
            output += progress.output
    job.close_input()
    last = end(job)
    assert (tmp_path / "starts").read_text() == "started\n"
    assert output + last.output == count_up(5000) + b"got one\ngot two\ngot three\nend\n"
    assert (last.exit_code, last.tail) == (3, None)
    assert transport.dropped  # a machine that is busy makes fewer looks


def test_inputs_arrive_in_order(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "bin" / "cat"
    slow.parent.mkdir()
    slow.write_text('#!/bin/sh\n[ $# = 0 ] || sleep 0.5\nexec /bin/cat "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    job, inputs = start(jobs, "cat"), [b"first ", b"long " * 8000, b"third ", b"long " * 8000, b"last"]
    for data in inputs:
        job.send(data)
    job.close_input()
    assert end(job).output == b"".join(inputs)


def test_false_end_marker_is_ignored(jobs: Jobs, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polled_job, "FLUSH_S", 0.3)
    words = f"f=$(echo {root}/*.lock); f=${{f##*/}}; echo before; printf '<end %s>' ${{f%.lock}}; sleep 60"
    job = start(jobs, words)
    assert printed(job, b"before\n") == b"before\n"
    progress = job.poll(wait_s=0.1, kill=True)
    assert (progress.running, progress.timed_out) == (False, True)


def test_short_job_takes_one_exec(root: Path) -> None:
    recorder, counts = Recorder(), []
    jobs = Jobs(recorder, root=str(root))
    for _ in range(20):
        recorder.scripts.clear()
        end(start(jobs, "echo hello"))
        counts.append(len(recorder.scripts))
    assert min(counts) == 1, counts  # the last output may come a moment after the end


def test_only_ends_of_output_are_fetched(root: Path) -> None:
    recorder = Recorder()
    progress = end(start(Jobs(recorder, root=str(root)), "head -c 100000000 /dev/zero; echo last", 1000))
    assert progress.output == bytes(1000)
    assert (progress.tail or b"").endswith(b"\0last\n")
    assert sum(map(len, recorder.answers)) < 10_000


def test_killed_leader_keeps_its_output(jobs: Jobs, root: Path) -> None:
    wait = f"until [ -s {root}/*.out ]; do sleep 0.05; done"
    job = start(jobs, f"echo partial; {wait}; kill -9 $(cat {root}/*.lock)")
    progress = job.poll(wait_s=30)
    assert (progress.running, progress.exit_code, progress.output) == (False, 137, b"partial\n")
