from __future__ import annotations

from swe_argo.steps.argo.node_failures import failed_shard, find_lost, find_unmade_shards, unit_failure
from swe_argo.steps.argo.nodes import UnitName
from swe_argo.steps.contracts.data import Stage
from swe_argo.steps.contracts.failure import Failure, FailureClass
from tests.steps.argo.recorded import node, workflow


def test_the_failure_of_a_try_says_what_the_try_would_have_said() -> None:
    found = unit_failure(node("oom"))
    assert found is not None
    assert found == Failure(
        step="solve",
        instance_id="oom",
        attempt=1,
        failure_class=FailureClass.OUT_OF_MEMORY,
        reason="the pod of solve ran out of memory: its own limit, not the sandbox's",
        detail="Argo Workflows: Failed: main: OOMKilled (exit code 137)",
        exit_code=75,
        occurred_at=node("oom")["finishedAt"].replace("Z", "+00:00"),  # as a step writes it: tries are ordered by it
        seconds=found.seconds,
    )
    assert 0 < found.seconds < 60


def test_time_in_which_no_pod_ran_is_not_counted() -> None:
    found = unit_failure(node("nowhere"))
    assert found is not None
    assert found.seconds == 0


def test_of_a_stopped_shard_the_tries_that_failed_or_were_ended_at_work_are_known() -> None:
    found = {(each.unit.instance_id, each.name): each.failure for each in find_lost(workflow("stopped_shard"))}
    assert {key: (each.step, each.failure_class.value) for key, each in found.items()} == {
        ("fails", "rec4-solve-211831872"): ("solve", "step_killed"),
        ("fails", "rec4-solve-949900013"): ("solve", "step_killed"),
        ("fails", "rec4-solve-278648158"): ("solve", "stopped"),
        ("never", "rec4-grade-2804048989"): ("grade", "stopped"),
        ("done", "rec4-grade-4026342485"): ("grade", "stopped"),
    }  # and not rec4-solve-3721458829 of "works": its pod was never made


def test_a_shard_that_came_to_its_units_is_not_closed() -> None:
    assert failed_shard(workflow("stopped_shard", shard="00001")) is None


def test_a_shard_that_was_stopped_while_it_waited_is_no_failure() -> None:
    assert failed_shard(workflow("shard_stopped_while_waiting")) is None


def test_a_shard_whose_list_failed_says_why_for_each_of_its_units() -> None:
    found = failed_shard(workflow("shard_without_list"))
    assert found is not None
    assert (found.shard, found.name) == ("00001", "rec6-list-2509709473")
    told = found.failure(UnitName("a__b-1", 2), Stage.GRADE)
    assert (told.step, told.instance_id, told.attempt, told.seconds) == ("grade", "a__b-1", 2, 0.0)
    assert told.failure_class is FailureClass.STEP_KILLED
    assert told.reason.startswith("its shard never came to it: list ended with exit code 1 before it said why")


def test_a_shard_that_argo_refused_says_it_in_argos_words() -> None:
    found = failed_shard(workflow("shard_without_template"))
    assert found is not None
    assert found.reason.words == 'the Workflow rec7 failed: workflowtemplates.argoproj.io "not-there" not found'
    assert (found.shard, found.name, found.reason.failure_class) == ("00002", "rec7", FailureClass.CONFIG)
    bad = failed_shard(workflow("shard_with_a_bad_list"))
    assert bad is not None
    assert "withParam value could not be parsed as a JSON list" in bad.reason.words


def test_shards_that_could_not_be_made_are_known_by_the_run() -> None:
    whole = workflow("stopped_parent")
    whole["spec"] = {}
    found = {each.shard: each.reason for each in find_unmade_shards(whole)}
    assert sorted(found) == ["00000", "00002"]  # 00001 was retried after its pod was deleted, and then stopped
    assert found["00000"].words == "its Workflow failed, and is gone with what it knew"
    assert found["00002"].failure_class is FailureClass.ADMISSION
    assert found["00002"].words.startswith('workflows.argoproj.io "rec10-s00002" is forbidden: User ')


def test_a_stop_of_the_run_is_no_failure_of_the_shards_that_it_came_before() -> None:
    whole = workflow("stopped_parent")
    node = next(each for each in whole["status"]["nodes"].values() if "forbidden" in each.get("message", ""))
    assert [each.shard for each in find_unmade_shards(whole)] == ["00002"]  # refused, whatever came after
    node["message"] = 'main: Error (exit code 64): Get "https://10.96.0.1:443/...": context canceled'
    assert find_unmade_shards(whole) == []
