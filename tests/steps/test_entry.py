"""The container side of a step, as its caller sees it: a process, its files and its exit code."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from swe_argo.steps import entry
from swe_argo.steps.contracts.failure import Failure, FailureClass
from swe_argo.steps.contracts.verdict import GradeRecord
from tests.bench.start import RUN

STEP = """
import sys, time
from swe_argo.steps.contracts.chain import Step
from swe_argo.steps.contracts.data import *
from swe_argo.steps.contracts.failure import *
from swe_argo.steps.contracts.verdict import *
from swe_argo.steps.contracts.trajectory import *
from swe_argo.steps.entry import run_step
from swe_argo.steps.errors import *

STEP = Step("toy", takes=(Patch,), gives=(TestLog,))
EXTRA = TrajectoryExtra(instance_id="i", attempt=1, stop_reason="interrupted", started_at="now", seconds=1.0,
                        usage=Usage(calls=3, requests=4))
LEFT = Trajectory(agent=AgentInfo(name="a", version="1"), steps=[Turn(step_id=1, source="user", message="m")],
                  extra=EXTRA)

def work(context, inputs):
    patch = inputs[Patch]
    yield TestLog(patch.data + context.try_name.encode())
    {body}

run_step(STEP, work)
"""


WAITS = """folder = sys.argv[2] + '/..'
    try:
        open(folder + '/began', 'w').close()
        time.sleep(600)
    finally: open(folder + '/cleaned', 'w').close()"""


def prepare(tmp_path: Path, body: str, patch: bytes | None = b"p") -> list[str]:
    """The command of a step with this body."""
    (tmp_path / "in").mkdir(exist_ok=True)
    if patch is not None:
        (tmp_path / "in" / "patch.diff").write_bytes(patch)
    (tmp_path / "toy.py").write_text(STEP.replace("{body}", body))
    folders = ["--in", str(tmp_path / "in"), "--out", str(tmp_path / "out")]
    return [sys.executable, str(tmp_path / "toy.py"), *folders, "--try", "t7"]


def start(tmp_path: Path, body: str, *flags: str, patch: bytes | None = b"p") -> subprocess.Popen[bytes]:
    command = [*prepare(tmp_path, body, patch), *flags]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, said = process.communicate(timeout=60)
    return process.returncode, said.decode()


def left(tmp_path: Path, folder: str = "out") -> set[str]:
    return {path.name for path in (tmp_path / folder).iterdir()}


def test_a_step_that_succeeds_writes_its_files_and_exits_0(tmp_path: Path) -> None:
    assert finish(start(tmp_path, "pass")) == (0, "")
    assert (tmp_path / "out" / "test_output.txt").read_bytes() == b"pt7"
    assert left(tmp_path) == {"test_output.txt", "outcome"}


GRADED = """yield GradeRecord(instance_id="i", attempt=1, outcome=Outcome.UNRESOLVED, resolved=False,
        integrity=Integrity(verdict="ok"), patch_sha256="", versions={})"""


def test_the_record_of_a_unit_says_when_its_step_was_at_work(tmp_path: Path) -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)  # records have whole ones
    assert finish(start(tmp_path, f"time.sleep(0.05)\n    {GRADED}")) == (0, "")
    grade = GradeRecord.from_bytes((tmp_path / "out" / "grade.json").read_bytes())
    began, ended = datetime.fromisoformat(grade.began_at), datetime.fromisoformat(grade.ended_at)
    assert before <= began <= ended - timedelta(milliseconds=49)
    assert ended <= datetime.now(UTC)


def test_a_record_of_before_it_said_that_is_read() -> None:
    told = {"instance_id": "i", "attempt": 1, "outcome": "unresolved", "resolved": False, "patch_sha256": ""}
    old = {**told, "integrity": {"verdict": "ok"}, "versions": {}}
    assert GradeRecord.from_bytes(json.dumps(old).encode()).began_at == ""


@pytest.mark.parametrize(
    ("body", "code", "failure_class"),
    [
        ('raise InfraError(FailureClass.EXEC, "the line went dead", detail="503")', 75, FailureClass.EXEC),
        ('raise ResourceError(FailureClass.OUT_OF_MEMORY, "too little")', 76, FailureClass.OUT_OF_MEMORY),
        ('raise ConfigError("no such image", field="sandbox.registry")', 64, FailureClass.CONFIG),
        ("1 / 0", 70, FailureClass.BUG),
    ],
)
def test_a_step_that_fails_leaves_the_reason_and_nothing_else(
    tmp_path: Path, body: str, code: int, failure_class: FailureClass
) -> None:
    returned, said = finish(start(tmp_path, body))
    failure = Failure.from_bytes((tmp_path / "out" / "try" / "failure.json").read_bytes())
    assert (returned, failure.exit_code, failure.failure_class) == (code, code, failure_class)
    assert failure.reason in said
    assert left(tmp_path) == {"try"}
    assert left(tmp_path, "out/try") == {"failure.json"}


def test_a_full_disk_is_a_failure_of_the_world(tmp_path: Path) -> None:
    """On a real one, of 64 KiB."""
    small = ["bwrap", "--dev-bind", "/", "/", "--size", "65536", "--tmpfs", str(tmp_path / "out")]
    (tmp_path / "out").mkdir()
    if not shutil.which("bwrap") or subprocess.run([*small, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs bubblewrap, and a user who may make namespaces")
    step = prepare(tmp_path, "yield TestLog(bytes(1 << 20))")
    keeps = f"{shlex.join(step)}; code=$?; cp -r {tmp_path}/out {tmp_path}/kept; exit $code"
    done = subprocess.run([*small, "sh", "-c", keeps], check=False, capture_output=True, text=True)
    failure = Failure.from_bytes((tmp_path / "kept" / "try" / "failure.json").read_bytes())
    assert (done.returncode, failure.failure_class) == (75, FailureClass.STORAGE)
    assert failure.reason == "toy's own disk: No space left on device"
    assert left(tmp_path, "kept") == {"try"}


def test_why_a_step_failed_is_also_told_where_a_watcher_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWE_ARGO_REASON", str(tmp_path / "reason"))
    finish(start(tmp_path, 'raise InfraError(FailureClass.EXEC, "the line went dead", detail="503")'))
    assert (tmp_path / "reason").read_text() == "toy: the line went dead"


def test_a_long_reason_is_cut_between_words_for_a_watcher_who_is_told_where_the_whole_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWE_ARGO_REASON", str(tmp_path / "reason"))
    finish(start(tmp_path, 'raise InfraError(FailureClass.EXEC, "word " * 60)'))
    told = (tmp_path / "reason").read_text()
    assert told.endswith(" word ... (all of it: failure.json)")
    assert len(told) <= entry.REASON


def test_a_flag_that_a_step_does_not_know_is_a_wrong_request_told_in_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The templates of a run may be newer than its image."""
    monkeypatch.setenv("SWE_ARGO_REASON", str(tmp_path / "reason"))
    for program in ("solve", "plan", "finalize", "canary", "compare"):
        (tmp_path / "reason").unlink(missing_ok=True)
        given = ["--in", "in", "--out", "out", "--store", "s", "--run", "r", "--workflow", "w", "--new-one"]
        done = subprocess.run(
            [sys.executable, "-m", f"swe_argo.steps.{program}", *given], capture_output=True, check=False
        )
        assert done.returncode == 64, (program, done.stderr)
        assert (tmp_path / "reason").read_text().startswith(f"{program}: ")
        assert "--new-one" in (tmp_path / "reason").read_text()


def test_a_failure_keeps_what_is_worth_keeping_of_the_try(tmp_path: Path) -> None:
    finish(start(tmp_path, 'raise InfraError(FailureClass.EXEC, "x", leaves=(LEFT,))'))
    assert left(tmp_path, "out/try") == {"failure.json", "trajectory.json"}


@pytest.mark.parametrize("body", ['raise InfraError(FailureClass.EXEC, "x", leaves=(LEFT,))', "1 / 0"])
@pytest.mark.parametrize("kept", [True, False])
def test_a_failure_says_what_was_spent_whether_or_not_the_trajectory_is_kept(
    tmp_path: Path, body: str, kept: bool
) -> None:
    grown = "(context.leaves.mkdir(parents=True), (context.leaves / 'trajectory.json').write_bytes(LEFT.to_bytes()))"
    spec = RUN.spec.model_copy(update={"save_checkpoints": kept})
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "run.json").write_bytes(RUN.model_copy(update={"spec": spec}).to_bytes())
    finish(start(tmp_path, f"{grown}; {body}"))
    there = left(tmp_path, "out/try")
    assert there == ({"failure.json", "trajectory.json"} if kept else {"failure.json"})
    failure = Failure.from_bytes((tmp_path / "out" / "try" / "failure.json").read_bytes())
    assert (failure.usage.calls, failure.usage.requests) == (3, 4)


def test_a_bug_keeps_its_traceback(tmp_path: Path) -> None:
    _, said = finish(start(tmp_path, "1 / 0"))
    assert "ZeroDivisionError" in Failure.from_bytes((tmp_path / "out" / "try" / "failure.json").read_bytes()).detail
    assert "Traceback" in said


def test_a_missing_input_is_a_wrong_request(tmp_path: Path) -> None:
    code, said = finish(start(tmp_path, "pass", patch=None))
    assert code == 64
    assert "patch.diff is missing" in said


def test_a_tied_step_ends_when_its_starter_is_gone(tmp_path: Path) -> None:
    process = start(tmp_path, WAITS, "--tied")
    while not (tmp_path / "began").exists():
        time.sleep(0.02)
    assert process.stdin is not None
    process.stdin.close()
    process.wait(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert (tmp_path / "cleaned").exists()
    assert process.stderr is not None
    process.stderr.close()


def test_a_step_that_is_told_to_end_cleans_up(tmp_path: Path) -> None:
    process = start(tmp_path, WAITS)
    while not (tmp_path / "began").exists():
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGTERM)
    assert finish(process)[0] == 128 + signal.SIGTERM
    assert (tmp_path / "cleaned").exists()
    failure = Failure.from_bytes((tmp_path / "out" / "try" / "failure.json").read_bytes())
    assert (failure.failure_class, failure.exit_code) == (FailureClass.STEP_KILLED, 75)


def test_help_says_what_a_step_takes_and_gives() -> None:
    command = [sys.executable, "-m", "swe_argo.steps.grade", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "run.json, instance.json, answer.json, patch.diff" in " ".join(done.stdout.split())
