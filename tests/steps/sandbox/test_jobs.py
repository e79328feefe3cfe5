"""Detached jobs over a transport that runs a real shell, and over one that drops connections."""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError, ResourceError
from swe_argo.steps.sandbox import job_watch
from swe_argo.steps.sandbox.job_watch import PollTimes
from swe_argo.steps.sandbox.jobs import Job, JobResult, Jobs
from swe_argo.steps.sandbox.transfer import read_file, write_file

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jobs run in sandboxes, which are Linux")


def shell(script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> tuple[int, bytes]:
    result = subprocess.run(["/bin/sh", "-c", script], input=stdin, stdout=subprocess.PIPE, check=False)
    return result.returncode, result.stdout


class Dropping:
    """A transport whose connections drop before or after the script ran, repeated as a transport must."""

    def __init__(self, seed: int, rate: float) -> None:
        self.random = random.Random(seed)
        self.rate = rate
        self.dropped = 0

    def __call__(self, script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> tuple[int, bytes]:
        while True:
            if self.random.random() < self.rate:
                self.dropped += 1
                continue
            code, out = shell(script, stdin, wait_s=wait_s)
            if self.random.random() < self.rate:
                self.dropped += 1
                if self.random.random() < 0.5:
                    return code, out[: self.random.randrange(len(out) + 1)]  # cut, without anybody noticing
                continue
            return code, out


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(shell, root=str(tmp_path / "jobs"))


def go(jobs: Jobs, command: str, timeout_s: float = 20, merge: bool = False, limit: int = 64 << 20) -> JobResult:
    return jobs.run(Job(command, timeout_s, "/", merge=merge, max_output_bytes=limit))


def test_exit_code_124_is_no_timeout(jobs: Jobs) -> None:
    result = go(jobs, "echo out; echo err >&2; exit 124")
    assert (result.exit_code, result.timed_out, result.stdout, result.stderr) == (124, False, b"out\n", b"err\n")


def test_kill_signal_is_no_timeout(jobs: Jobs) -> None:
    assert (go(jobs, "kill -9 0").exit_code, go(jobs, "kill -9 0").timed_out) == (137, False)


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
    gate.write_text("the child was there, and waited")
    assert (result.stdout, result.truncated) == (b"in time\n", False)


def test_output_limit_is_exact(jobs: Jobs) -> None:
    for merge in (False, True):
        exact = go(jobs, "printf 0123456789", merge=merge, limit=10)
        assert (exact.stdout, exact.truncated) == (b"0123456789", False)
        more = go(jobs, "printf 0123456789a", merge=merge, limit=10)
        assert (more.stdout, more.truncated) == (b"0123456789", True)


def test_missing_cwd_is_a_result(jobs: Jobs) -> None:
    result = jobs.run(Job("true", 5, "/no/such/folder"))
    assert result.exit_code == 126
    assert b"/no/such/folder" in result.stderr


def test_command_environment_is_separate(jobs: Jobs) -> None:
    result = jobs.run(Job('echo "$PATH $d"', 5, "/", {"PATH": "/nowhere", "d": "x"}))
    assert (result.exit_code, result.stdout) == (0, b"/nowhere x\n")


def test_lost_supervisor_loses_the_job(jobs: Jobs, tmp_path: Path) -> None:
    wait = f"until [ -s {tmp_path}/jobs/*.out ]; do sleep 0.05; done"
    command = f"echo partial; {wait}; kill -9 $(cat {tmp_path}/jobs/*.lock); cat {tmp_path}/gate"
    os.mkfifo(tmp_path / "gate")
    result = go(jobs, command)
    (tmp_path / "gate").write_text("the command was still under way")
    assert (result.is_lost, result.exit_code, result.stdout) == (True, None, b"partial\n")


def test_finished_jobs_are_cleaned_up(jobs: Jobs, tmp_path: Path) -> None:
    for _ in range(4):
        go(jobs, "true")
    suffixes = [path.suffix for path in (tmp_path / "jobs").iterdir()]
    assert suffixes.count(".lock") == 4  # a start that arrives late must still find it
    assert suffixes.count(".out") <= 2


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("command", ["echo out; echo err >&2", "head -c 300k /dev/zero", "kill $$"])
def test_ended_job_leaves_no_process(jobs: Jobs, tmp_path: Path, command: str, merge: bool) -> None:
    go(jobs, command, merge=merge, limit=100 << 10)
    while processes_that_hold(str(tmp_path)):
        time.sleep(0.05)


def processes_that_hold(word: str) -> list[str]:
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            targets = [str(link.readlink()) for link in (entry / "fd").iterdir()]
            if entry.name != str(os.getpid()) and any(word in target for target in targets):
                pids.append(entry.name)
    return pids


def test_late_start_repeats_no_command(jobs: Jobs, tmp_path: Path) -> None:
    scripts: list[str] = []

    def recording(script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> tuple[int, bytes]:
        scripts.append(script)
        return shell(script, stdin)

    jobs = Jobs(recording, root=str(tmp_path / "jobs"))
    for word in ("first", "second", "third"):
        go(jobs, f"echo {word} >>{tmp_path}/ran")
    shell(scripts[0])
    time.sleep(0.3)
    assert (tmp_path / "ran").read_text() == "first\nsecond\nthird\n"


def test_pkill_spares_the_supervisor(jobs: Jobs) -> None:
    if not shutil.which("pkill"):
        pytest.skip("no pkill")
    result = go(jobs, f"pkill -f {secrets.token_hex(8)}")
    assert (result.exit_code, result.is_lost) == (1, False)


def test_command_may_hold_invalid_utf8(jobs: Jobs) -> None:
    command = b"printf '\xff\xc3(' | wc -c".decode(errors="surrogateescape")
    assert go(jobs, command).stdout == b"3\n"


def test_chunk_size_shrinks_on_cuts(tmp_path: Path) -> None:
    cut = []

    def cutting(script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> tuple[int, bytes]:
        code, out = shell(script, stdin)
        cut.extend([len(out)] if len(out) > 300_000 else [])
        return code, out[:300_000]

    jobs = Jobs(cutting, root=str(tmp_path / "jobs"), poll_times=PollTimes(chunk_bytes=4 << 20, most_bytes=4 << 20))
    result = go(jobs, "head -c 1000000 /dev/zero; head -c 500000 /dev/zero >&2")
    assert (len(result.stdout), len(result.stderr), result.exit_code) == (1_000_000, 500_000, 0)
    assert cut


def test_chunk_size_grows_on_fast_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_watch, "_FAST_BYTES_S", 1.0)  # this machine may be slow with other work
    answers = []

    def counting(script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> tuple[int, bytes]:
        answers.append(shell(script, stdin))
        return answers[-1]

    jobs = Jobs(counting, root=str(tmp_path / "jobs"), poll_times=PollTimes(chunk_bytes=1 << 20))
    assert len(go(jobs, "head -c 30000000 /dev/zero").stdout) == 30_000_000
    assert len(answers) < 12


def test_unwritable_root_is_infra_error() -> None:
    jobs = Jobs(shell, root="/proc/nowhere", poll_times=PollTimes(start_wait_s=0, attempts=2))
    with pytest.raises(InfraError, match="does not run commands") as caught:
        go(jobs, "true")
    assert caught.value.failure_class is FailureClass.EXEC


@pytest.mark.parametrize("seed", range(4))
def test_command_survives_drops(tmp_path: Path, seed: int) -> None:
    transport = Dropping(seed, 0.3)
    poll_times = PollTimes(start_wait_s=0.05, poll_wait_s=0.1, chunk_bytes=20_000, attempts=20)
    jobs = Jobs(transport, root=str(tmp_path / "jobs"), poll_times=poll_times)
    result = go(jobs, f"echo started >>{tmp_path}/starts; seq 50000; sleep 0.3; echo end >&2; exit 3")
    assert (tmp_path / "starts").read_text() == "started\n"
    assert result.stdout == "".join(f"{i}\n" for i in range(1, 50001)).encode()
    assert (result.stderr, result.exit_code, result.truncated) == (b"end\n", 3, False)
    assert transport.dropped  # a machine that is busy makes fewer looks


def test_file_survives_drops(tmp_path: Path) -> None:
    transport = Dropping(7, 0.2)
    data = hashlib.shake_256(b"seed").digest(300_000)
    target = tmp_path / "new" / "file"
    write_file(transport, str(target), data, piece_bytes=40_000)
    assert target.read_bytes() == data
    assert list(target.parent.iterdir()) == [target]
    assert transport.dropped > 2


def test_small_file_takes_one_exec(tmp_path: Path) -> None:
    scripts: list[str] = []

    def answer_lost(script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> tuple[int, bytes]:
        scripts.append(script)
        code, out = shell(script, stdin)
        return (code, out) if len(scripts) > 1 else (1, b"")

    target = tmp_path / "new" / "file"
    write_file(answer_lost, str(target), b"data")
    assert len(scripts) == 2
    write_file(answer_lost, str(target), b"other")
    assert len(scripts) == 3
    assert target.read_bytes() == b"other"
    assert list(target.parent.iterdir()) == [target]


def test_small_file_survives_drops(tmp_path: Path) -> None:
    for seed in range(20):
        target = tmp_path / str(seed)
        write_file(Dropping(seed, 0.3), str(target), b"small")
        assert target.read_bytes() == b"small"
    assert len(list(tmp_path.iterdir())) == 20


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
    with pytest.raises(IsADirectoryError):
        write_file(shell, str(tmp_path), b"")
    with pytest.raises(NotADirectoryError):
        write_file(shell, str(tmp_path / "file" / "below"), b"")
    with pytest.raises(PermissionError):
        write_file(shell, "/proc/uptime", b"")


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


def test_file_is_read_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789" * 1000)
    assert read_file(shell, str(tmp_path / "file"), piece_bytes=999) == b"0123456789" * 1000


def test_waiting_starts_no_processes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    looks: list[str] = []
    for name in ("timeout", "head", "sleep"):
        wrapper = tmp_path / "bin" / name
        wrapper.parent.mkdir(exist_ok=True)
        wrapper.write_text(f'#!/bin/sh\necho {name} >>{log}\nexec {shutil.which(name)} "$@"\n')
        wrapper.chmod(0o755)

    def counting(script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> tuple[int, bytes]:
        looks.append(script)
        return shell(f"PATH={tmp_path}/bin:$PATH; {script}", stdin, wait_s=wait_s)

    result = go(
        Jobs(counting, root=str(tmp_path / "jobs"), poll_times=PollTimes(start_wait_s=1, poll_wait_s=30)), "sleep 6"
    )
    assert result.exit_code == 0
    # The job's own timeout and sleep, and a head for each look.
    began = log.read_text().split()
    assert (began.count("timeout"), began.count("sleep")) == (1, 1)
    assert began.count("head") <= len(looks)
