from __future__ import annotations

from swe_argo.steps.argo.node_failures import failed_shard, find_lost, find_shards_without_workflow, unit_failure
from swe_argo.steps.argo.nodes import UnitName
from swe_argo.steps.contracts.data import Stage
from swe_argo.steps.contracts.failure import Failure, FailureClass
from tests.steps.argo.recorded import node, workflow


def test_unit_failure_equals_step_one() -> None:
    failure = unit_failure(node("oom"))
    assert failure is not None
    assert failure == Failure(
        step="solve",
        instance_id="oom",
        attempt=1,
        failure_class=FailureClass.OUT_OF_MEMORY,
        reason="the pod of solve ran out of memory: its own limit, not the sandbox's",
        detail="Argo Workflows: Failed: main: OOMKilled (exit code 137)",
        exit_code=75,
        occurred_at=node("oom")["finishedAt"].replace("Z", "+00:00"),  # as a step writes it: tries are ordered by it
        seconds=failure.seconds,
    )
    assert 0 < failure.seconds < 60


def test_unit_failure_skips_pending() -> None:
    failure = unit_failure(node("nowhere"))
    assert failure is not None
    assert failure.seconds == 0


def test_find_lost_lists_tries() -> None:
    failures = {(lost.unit.instance_id, lost.name): lost.failure for lost in find_lost(workflow("stopped_shard"))}
    assert {key: (lost.step, lost.failure_class.value) for key, lost in failures.items()} == {
        ("fails", "rec4-solve-211831872"): ("solve", "step_killed"),
        ("fails", "rec4-solve-949900013"): ("solve", "step_killed"),
        ("fails", "rec4-solve-278648158"): ("solve", "stopped"),
        ("never", "rec4-grade-2804048989"): ("grade", "stopped"),
        ("done", "rec4-grade-4026342485"): ("grade", "stopped"),
    }  # and not rec4-solve-3721458829 of "works": its pod was never made


def test_worked_shard_is_not_failed() -> None:
    assert failed_shard(workflow("stopped_shard", shard="00001")) is None


def test_stopped_shard_is_not_failed() -> None:
    assert failed_shard(workflow("shard_stopped_while_waiting")) is None


def test_failed_list_fails_units() -> None:
    lost = failed_shard(workflow("shard_without_list"))
    assert lost is not None
    assert (lost.shard, lost.name) == ("00001", "rec6-list-2509709473")
    failure = lost.failure(UnitName("a__b-1", 2), Stage.GRADE)
    assert (failure.step, failure.instance_id, failure.attempt, failure.seconds) == ("grade", "a__b-1", 2, 0.0)
    assert failure.failure_class is FailureClass.STEP_KILLED
    assert failure.reason.startswith("its shard never started it: list ended with exit code 1 and no message")


def test_refused_shard_quotes_argo() -> None:
    lost = failed_shard(workflow("shard_without_template"))
    assert lost is not None
    assert lost.reason.text == 'the Workflow rec7 failed: workflowtemplates.argoproj.io "not-there" not found'
    assert (lost.shard, lost.name, lost.reason.failure_class) == ("00002", "rec7", FailureClass.CONFIG)
    bad = failed_shard(workflow("shard_with_a_bad_list"))
    assert bad is not None
    assert "withParam value could not be parsed as a JSON list" in bad.reason.text


def test_find_unmade_shards_reads_parent() -> None:
    whole = workflow("stopped_parent")
    whole["spec"] = {}
    reasons = {item.shard: item.reason for item in find_shards_without_workflow(whole)}
    assert sorted(reasons) == ["00000", "00002"]  # 00001 was retried after its pod was deleted, and then stopped
    assert reasons["00000"].text == "its Workflow failed and was deleted, so the reason is unknown"
    assert reasons["00002"].failure_class is FailureClass.ADMISSION
    assert reasons["00002"].text.startswith('workflows.argoproj.io "rec10-s00002" is forbidden: User ')


def test_stopped_shards_are_not_unmade() -> None:
    whole = workflow("stopped_parent")
    node = next(item for item in whole["status"]["nodes"].values() if "forbidden" in item.get("message", ""))
    assert [item.shard for item in find_shards_without_workflow(whole)] == ["00002"]  # refused, whatever came after
    node["message"] = 'main: Error (exit code 64): Get "https://10.96.0.1:443/...": context canceled'
    assert find_shards_without_workflow(whole) == []
