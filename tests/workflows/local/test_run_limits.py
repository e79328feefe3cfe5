"""What ends a run early: its first failure, its money, a closed endpoint. What is left, the next run does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from swe_argo.steps.contracts.failure import Failure, FailureClass
from swe_argo.steps.contracts.images import swebench_image
from swe_argo.steps.contracts.machine import Machine
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.solve_record import History, SolveRecord
from swe_argo.steps.contracts.trajectory import StopReason, Usage
from swe_argo.steps.datasets.mini import prepare
from swe_argo.steps.store import open_store
from swe_argo.workflows.local.machines import default_graders, default_workers
from swe_argo.workflows.local.run_limits import RunLimits, read_usage_before
from swe_argo.workflows.local.runner import grader_count, worker_count
from swe_argo.workflows.resources import deadline_s
from tests.workflows.command import QUICK, begin, failures, ids, kill, steps_of, summary, swe_argo, wait_for

PAID = Usage(calls=1, requests=1, cost_usd=0.4)


def limits(before: Usage | None = None, **chosen_spec: object) -> RunLimits:
    return RunLimits(RunSpec.model_validate(chosen_spec), before or Usage())


def failure(failure_class: FailureClass) -> Failure:
    return Failure(
        step="solve",
        instance_id="a__b-1",
        attempt=1,
        failure_class=failure_class,
        reason="why",
        exit_code=64,
        occurred_at="now",
        usage=PAID,
    )


def solved() -> SolveRecord:
    history = History(head="h", refs_removed=0, objects_before=1, objects_after=1, unreachable_after=0, verified=True)
    machine = Machine(backend="local", image="i", image_digest=None, isolation="none", network=False)
    return SolveRecord(
        instance_id="a__b-1",
        attempt=1,
        agent="openhands",
        stop_reason=StopReason.FINISHED,
        history=history,
        machine=machine,
        seconds={},
        usage=Usage(calls=3, requests=4, cost_usd=0.5),
        patch_bytes=0,
    )


def test_limits_close_when_cost_is_spent() -> None:
    bound = limits(max_cost_usd=1)
    bound.count(PAID)
    bound.count(PAID)
    assert bound.closed is None
    bound.count(PAID)
    assert bound.closed is not None
    assert bound.closed.reason == "--max-cost 1 is spent: $1.20"
    assert bound.closed.flags == ("--max-cost", "2.4")
    assert not bound.closed.failed


def test_limits_suggest_legal_cost() -> None:
    bound = limits(Usage(calls=1, requests=1, cost_usd=0.00002), max_cost_usd=0.00001)
    assert bound.closed is not None
    assert float(bound.closed.flags[1]) == pytest.approx(0.00004)


def test_limits_count_earlier_cost() -> None:
    assert limits(PAID, max_cost_usd=0.4).closed is not None
    assert limits(PAID, max_cost_usd=0.5).closed is None


def test_limits_close_without_price() -> None:
    bound = limits(max_cost_usd=1)
    bound.count(Usage(calls=1, requests=1))
    assert bound.closed is not None
    assert "--input-cost-per-token" in bound.closed.reason


def test_unanswered_requests_are_free() -> None:
    bound = limits(max_cost_usd=1)
    bound.count(Usage(requests=5))
    assert bound.closed is None


def test_limits_need_max_cost_to_close() -> None:
    free = limits()
    free.count(Usage(calls=1, requests=1, cost_usd=1e6))
    assert (free.closed, free.spent.cost_usd) == (None, 1e6)


def test_limits_close_on_rejected_access() -> None:
    bound = limits()
    bound.failed(failure(FailureClass.MODEL))
    assert bound.closed is None
    bound.failed(failure(FailureClass.MODEL_ACCESS))
    assert bound.closed is not None
    assert not bound.closed.failed


def test_fail_fast_closes_limits() -> None:
    bound = limits(fail_fast=True)
    bound.failed(failure(FailureClass.EXEC))
    assert bound.closed is not None
    assert bound.closed.failed
    assert bound.closed.reason.endswith("a__b-1, solve: exec")  # its line said why


@pytest.mark.parametrize(
    ("ends", "closed"),
    [
        ([FailureClass.EXEC] * 2, False),
        ([FailureClass.EXEC] * 3, True),
        ([FailureClass.EXEC, FailureClass.EXEC, FailureClass.MODEL], False),
        ([FailureClass.EXEC, FailureClass.EXEC, FailureClass.MODEL, *[FailureClass.EXEC] * 3], False),
        ([FailureClass.EXEC, FailureClass.EXEC, None, *[FailureClass.EXEC] * 3], False),
        ([None, *[FailureClass.EXEC] * 5], False),
    ],
)
def test_equal_failures_close_limits(ends: list[FailureClass | None], closed: bool) -> None:
    bound = limits(give_up_after=3)
    for end in ends:
        if end is None:
            bound.judged()
        else:
            bound.failed(failure(end))
    assert (bound.closed is not None) == closed
    if bound.closed:
        assert bound.closed.reason.startswith("the first 3 units all failed with exec (")
        assert not bound.closed.failed


def test_limits_name_lost_endpoint() -> None:
    bound = limits(give_up_after=2)
    down = failure(FailureClass.MODEL).model_copy(update={"reason": "the model endpoint at URL refuses connections"})
    for _ in range(2):
        bound.failed(down)
    assert bound.closed is not None
    assert bound.closed.reason.startswith(
        "the model endpoint at URL refuses connections: the first 2 units all failed "
    )


def test_limits_never_give_up_when_zero() -> None:
    bound = limits(give_up_after=0)
    for _ in range(50):
        bound.failed(failure(FailureClass.EXEC))
    assert bound.closed is None


def test_usage_before_sums_all_tries(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), create=True)
    store.put(key(SolveRecord, "r", "a__b-1", 1), solved().to_bytes())
    for name in ("t1", "t2"):
        store.put(key(Failure, "r", "a__b-2", 1, name), failure(FailureClass.MODEL).to_bytes())
    store.put(key(Failure, "r", "a__b-3", 1, "t"), b"{ cut")
    spent = read_usage_before(store, "r")
    assert (spent.calls, spent.requests) == (5, 6)
    assert spent.cost_usd == pytest.approx(1.3)
    assert read_usage_before(store, "none") == Usage()


def test_default_workers_exceed_cores() -> None:
    assert default_workers("local") == default_graders("local")
    assert default_workers("local", asks_model=True) > default_graders("local")
    assert default_workers("docker", asks_model=True) <= 24
    assert default_workers("kubernetes", asks_model=True) == 16


@pytest.mark.parametrize(
    ("agent", "backend", "bound"),
    [("gold", "local", 64), ("openhands", "local", default_graders()), ("openhands", "kubernetes", 64)],
)
def test_grader_count_is_bounded(agent: str, backend: str, bound: int) -> None:
    spec = RunSpec.model_validate({"agent": {"name": agent}, "sandbox": {"backend": backend}, "workers": 64})
    assert (worker_count(spec), grader_count(spec)) == (64, bound)


def test_deadline_grows_with_attempts() -> None:
    once = RunSpec.model_validate({"agent": {"name": "openhands"}})
    thrice = RunSpec.model_validate({"agent": {"name": "openhands", "iterative": True}})
    assert deadline_s("solve", thrice) - deadline_s("solve", once) == 2 * 1800
    assert deadline_s("grade", thrice) == deadline_s("grade", once)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Images of which one is broken: its unit fails for good, at once, wherever it begins at solve."""
    prepare(tmp_path / "images", {name: swebench_image(name) for name in QUICK})
    head = next((tmp_path / "images").glob("*gridprint-1*")) / "testbed" / ".git" / "HEAD"
    (tmp_path / "head").write_bytes(head.read_bytes())
    head.write_bytes(b"garbage")
    return tmp_path / "images"


def test_fail_fast_run_resumes(tmp_path: Path, images: Path) -> None:
    store = str(tmp_path / "store")
    chosen_spec = ["--store", store, "--run-id", "r", "--local-images", str(images), "--agent", "idle", "-j", "1"]
    chosen_spec += ["--fail-fast", "--retries", "0", *ids(*QUICK)]
    result = swe_argo("run", *chosen_spec)
    assert result.returncode == 4, result.stdout + result.stderr
    last = result.stdout.strip().splitlines()[-2:]
    assert last[0].startswith(f"failed at its first unit without a verdict (--fail-fast): {QUICK[0]}, solve: ")
    assert last[0].endswith("3 units not started")
    assert last[1].startswith("continue with: swe-argo run --store")
    assert summary(store, "r").headline.total == 4
    assert summary(store, "r").headline.graded == 0
    head = next(images.glob("*gridprint-1*")) / "testbed" / ".git" / "HEAD"
    head.write_bytes((tmp_path / "head").read_bytes())
    again = swe_argo("run", *chosen_spec)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "4 units to do" in again.stdout


@pytest.mark.long
def test_run_gives_up_once_and_resumes(tmp_path: Path, images: Path) -> None:
    for head in images.glob("*/testbed/.git/HEAD"):
        shutil.copyfile(head, head.with_name("HEAD.good"))
        head.write_bytes(b"garbage")
    store = str(tmp_path / "store")
    chosen_spec = ["--store", store, "--run-id", "r", "--local-images", str(images), "--agent", "idle", "-j", "1"]
    chosen_spec += ["--retries", "0", "--give-up-after", "2", *ids(*QUICK)]
    result = swe_argo("run", *chosen_spec)
    assert result.returncode == 3, result.stdout + result.stderr
    *_, message, further = result.stdout.strip().splitlines()
    assert message.startswith("the first 2 units all failed with ")
    assert message.endswith("; 2 units not started")
    assert further.startswith("continue with: swe-argo run --store")
    assert "INVALID" in result.stdout
    for head in images.glob("*/testbed/.git/HEAD"):
        if (good := head.with_name("HEAD.good")).exists():
            shutil.copyfile(good, head)
    shutil.copyfile(tmp_path / "head", next(images.glob("*gridprint-1*")) / "testbed" / ".git" / "HEAD")
    again = swe_argo("run", *chosen_spec)
    assert again.returncode == 0, again.stdout + again.stderr


@pytest.mark.parametrize("saves_logs", [True, False])
@pytest.mark.long
def test_killed_step_log_is_saved(tmp_path: Path, saves_logs: bool) -> None:
    store = str(tmp_path)
    env = {"LOG_LEVEL": "debug", "EVAL_SAVE_ERROR_LOGS": str(saves_logs)}
    runner = begin("run", "--store", store, "--run-id", "r", *ids(QUICK[0]), env=env)
    wait_for(lambda: steps_of(store))
    wait_for(lambda: _has_output(steps_of(store)))
    for pid in steps_of(store):
        kill(pid)
    output, _ = runner.communicate(timeout=60)
    assert runner.returncode == 0, output
    assert [failure.failure_class for failure in failures(open_store(store), "r")] == [FailureClass.STEP_KILLED]
    logs = list(tmp_path.glob("runs/r/units/*/1/tries/*/step.log"))
    assert len(logs) == saves_logs
    if saves_logs:
        assert "DEBUG swe_argo.steps.sandbox.command_log: command " in logs[0].read_text()


def _has_output(pids: list[int]) -> bool:
    """Whether a step has written to its stderr, which is a file without a name."""
    return any((Path(f"/proc/{pid}/fd/2").stat().st_size if Path(f"/proc/{pid}").exists() else 0) > 0 for pid in pids)


@pytest.mark.long
def test_failed_step_log_is_one_line(tmp_path: Path, images: Path) -> None:
    chosen_spec = ["--store", str(tmp_path / "s"), "--run-id", "r", "--local-images", str(images), "--retries", "0"]
    result = swe_argo("run", *chosen_spec, "--agent", "idle", *ids(QUICK[0]))
    assert result.returncode == 3, result.stdout + result.stderr
    (log,) = (tmp_path / "s").glob("runs/r/units/*/1/tries/*/step.log")
    record = json.loads((log.parent / "failure.json").read_text())
    assert log.read_text().strip() == f"solve: {record['reason']}"
