from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from swe_argo.steps.contracts.data import Patch
from swe_argo.steps.contracts.failure import Failure, FailureClass
from swe_argo.steps.contracts.solve_record import SolveRecord
from swe_argo.steps.contracts.trajectory import StopReason, Trajectory
from swe_argo.steps.errors import EXIT_CONFIG, EXIT_INFRA, EXIT_OK
from swe_argo.steps.sandbox.local import bubblewrap
from tests.steps.agents.machine import git
from tests.steps.solve_process import SolveProcess, observations

needs_isolation = pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe()))


def test_an_idle_agent_leaves_an_empty_patch(tmp_path: Path) -> None:
    desk = SolveProcess(tmp_path, {"name": "idle"})
    git(desk.repo, "branch", "future", git(desk.repo, "commit-tree", "-m", "fix", "HEAD^{tree}"))
    done = desk.solve()
    assert done.returncode == EXIT_OK, done.stderr
    assert desk.files() == ["patch.diff", "solve.json", "trajectory.json"]
    assert desk.get(Patch).data == b""
    record: SolveRecord = desk.get(SolveRecord)
    assert (record.instance_id, record.attempt, record.agent) == ("o__r-1", 2, "idle")
    assert record.stop_reason is StopReason.FINISHED
    assert record.history is not None
    assert record.history.verified
    assert record.history.head == git(desk.repo, "rev-parse", "HEAD")
    assert record.history.refs_removed == 1
    assert record.history.objects_before - record.history.objects_after == 1
    assert set(record.seconds) == {"create", "prepare", "agent", "patch"}
    trajectory: Trajectory = desk.get(Trajectory)
    assert [(turn.source, turn.message) for turn in trajectory.steps] == [("user", "p")]
    assert trajectory.extra.stop_reason is StopReason.FINISHED


@needs_isolation
def test_a_replayed_agent_leaves_its_patch_and_its_trajectory(tmp_path: Path) -> None:
    desk = SolveProcess(tmp_path, {"name": "replay"})
    desk.record("echo 'a = 3' > a.py", "git log --all --oneline | wc -l", "ls /sys/class/net")
    done = desk.solve()
    assert done.returncode == EXIT_OK, done.stderr
    assert b"\n+a = 3\n" in desk.get(Patch).data
    trajectory: Trajectory = desk.get(Trajectory)
    assert (trajectory.agent.name, trajectory.agent.model_name, trajectory.extra.attempt) == ("replay", "m", 2)
    assert observations(trajectory)[1].strip() == "3"
    record: SolveRecord = desk.get(SolveRecord)
    assert record.machine.isolation == "bubblewrap"
    assert not record.machine.network
    assert record.patch_bytes == len(desk.get(Patch).data)
    git(desk.repo, "apply", "--check", str(desk.outputs / "patch.diff"))


@needs_isolation
def test_the_network_is_there_only_when_wished(tmp_path: Path) -> None:
    desk = SolveProcess(tmp_path, {"name": "replay"}, {"solve_network": True})
    desk.record("true")
    assert desk.solve().returncode == EXIT_OK
    assert desk.get(SolveRecord).machine.network


@pytest.mark.skipif(sys.platform != "linux", reason="finds the sandbox's supervisor in /proc")
@pytest.mark.parametrize(
    ("isolation", "code"),
    [
        pytest.param("auto", EXIT_INFRA, marks=needs_isolation, id="where somebody on this machine did it"),
        pytest.param("none", EXIT_OK, id="where the agent may have done it"),
    ],
)
def test_a_machine_that_is_lost_is_the_worlds_failure_only_where_something_outside_says_so(
    tmp_path: Path, isolation: str, code: int
) -> None:
    desk = SolveProcess(tmp_path, {"name": "replay"}, {"allow_host": True})
    desk.record("echo one", "echo 1 >a.py; sleep 60", "echo never")
    step = subprocess.Popen(desk.command(), env=os.environ | {"SWE_ARGO_ISOLATION": isolation}, stderr=subprocess.PIPE)
    try:
        kill_below(step.pid, b"sleep")
        _, said = step.communicate(timeout=60)
    finally:
        step.kill()
    assert step.returncode == code, said.decode()
    trajectory: Trajectory = desk.get(Trajectory)
    assert observations(trajectory) == ["one\n"]
    if code == EXIT_INFRA:
        assert desk.files() == ["failure.json", "trajectory.json"]
        assert trajectory.extra.stop_reason is StopReason.INTERRUPTED
        assert desk.get(Failure).failure_class is FailureClass.SANDBOX_LOST
        return
    record = desk.get(SolveRecord)
    assert trajectory.extra.stop_reason is record.stop_reason is StopReason.SANDBOX_BROKEN
    assert "the local sandbox is lost" in record.patch_note
    assert desk.get(Patch).data == b""


def kill_below(root: int, command: bytes) -> None:
    """End all that descends from a process, the outermost first, once ``command`` runs among it."""
    while True:
        below, wave = [], [root]
        while wave := [pid for parent in wave for pid in children(parent)]:
            below += wave
        if any(runs(pid, command) for pid in below):
            break
        time.sleep(0.05)
    for pid in below:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def runs(pid: int, command: bytes) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(command)
    return False


def children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def test_an_agent_that_deletes_the_repository_leaves_a_note(tmp_path: Path) -> None:
    desk = SolveProcess(tmp_path, {"name": "replay"}, {"allow_host": True})
    desk.record('echo 1 > a.py; rm -rf .git "${TMPDIR:-/var/tmp}"/*')
    done = desk.solve()
    assert done.returncode == EXIT_OK, done.stderr
    assert desk.get(Patch).data == b""
    assert desk.get(SolveRecord).patch_note == "the repository and the copy of its HEAD are gone"


def test_a_recorded_agent_is_refused_on_a_host_it_could_reach(tmp_path: Path) -> None:
    desk = SolveProcess(tmp_path, {"name": "replay"})
    desk.record("touch /tmp/reached")
    done = desk.solve(SWE_ARGO_ISOLATION="none")
    assert done.returncode == EXIT_CONFIG
    assert "--allow-host" in done.stderr
    assert desk.files() == ["failure.json"]


def test_an_idle_agent_needs_no_isolation(tmp_path: Path) -> None:
    desk = SolveProcess(tmp_path, {"name": "idle"})
    assert desk.solve(SWE_ARGO_ISOLATION="none").returncode == EXIT_OK


def test_an_image_without_a_repository_fails_the_unit_at_once(tmp_path: Path) -> None:
    desk = SolveProcess(tmp_path, {"name": "idle"})
    shutil.rmtree(desk.repo / ".git")
    done = desk.solve()
    assert done.returncode == EXIT_CONFIG
    assert "no agent can work in test/image: there is no git repository of its own at /testbed" in done.stderr
    assert desk.get(Failure).failure_class is FailureClass.CONFIG


@pytest.mark.parametrize(
    ("agent", "reason"), [("gold", "does not solve"), ("replay", "there is no recording of o__r-1")]
)
def test_what_cannot_be_solved_is_refused(tmp_path: Path, agent: str, reason: str) -> None:
    done = SolveProcess(tmp_path, {"name": agent}).solve()
    assert done.returncode == EXIT_CONFIG
    assert reason in done.stderr


def test_solving_imports_nothing_it_does_not_use() -> None:
    code = "import swe_argo.steps.solve, sys, json; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert not {"docker", "boto3", "datasets", "pyarrow", "jinja2", "swebench"} & set(loaded)
