from __future__ import annotations

from typing import Any

import pytest

from swe_argo.steps.argo.node_failures import (
    Reason,
    failed_shard,
    failure_reason,
    find_lost,
    find_shards_without_workflow,
    unit_failure,
    workflow_failure_reason,
)
from swe_argo.steps.argo.nodes import UnitName
from swe_argo.steps.contracts.data import Stage
from swe_argo.steps.contracts.failure import Failure, FailureClass
from tests.steps.argo.recorded import node, workflow

C = FailureClass


def failed(message: str, phase: str = "Failed", host: str = "node0") -> Reason:
    """The reason of a pod of ``solve`` with this message."""
    reason = failure_reason(
        {"type": "Pod", "phase": phase, "message": message, "hostNodeName": host, "templateName": "solve"}
    )
    assert reason is not None
    return reason


@pytest.mark.parametrize(
    ("case", "failure_class", "words", "exit_code"),
    [
        ("says-64", C.CONFIG, "image nowhere/x does not exist", 64),
        ("says-70", C.BUG, "KeyError: x", 70),
        ("says-75", C.STORAGE, "solve failed, and its record was not stored: the sandbox pod was evicted", 75),
        (
            "mute-1",
            C.STEP_KILLED,
            "solve ended with exit code 1 and no message: its pod may have been terminated while it started, "
            "or its image is broken",
            75,
        ),
        ("oom", C.OUT_OF_MEMORY, "the pod of solve ran out of memory: its own limit, not the sandbox's", 75),
        ("main-oom", C.OUT_OF_MEMORY, "the pod of solve ran out of memory: its own limit, not the sandbox's", 75),
        ("sigkill", C.STEP_KILLED, "solve was killed (SIGKILL)", 137),
        ("graceful", C.STEP_KILLED, "solve was terminated (SIGTERM): its pod was deleted", 143),
        ("deadline", C.STEP_TIMEOUT, "solve exceeded the deadline of its pod", 75),
        ("nowhere", C.UNSCHEDULABLE, "the pod of solve found no node in time", 75),
        (
            "no-image",
            C.IMAGE_PULL,
            "the pod of solve did not start in time: its image, its inputs or a Secret was not available",
            75,
        ),
        (
            "no-input",
            C.STORAGE,
            "the inputs of solve could not be fetched: artifact patch failed to load: "
            "The specified key does not exist.",
            75,
        ),
        (
            "no-bucket",
            C.STORAGE,
            "the outputs of solve could not be stored: failed to put file: The specified bucket does not exist;",
            75,
        ),
        (
            "forced",
            C.STEP_KILLED,
            "the pod of solve was deleted: its node was drained or lost, or a user removed it",
            75,
        ),
        (
            "bad-patch",
            C.CONFIG,
            "the pod of solve cannot be created: Error applying PodSpecPatch (settings *-pod)",
            64,
        ),
        ("stopped-at-work", C.STOPPED, "the run was stopped during grade", 75),
    ],
)
def test_failure_reason_reads_pods(case: str, failure_class: FailureClass, words: str, exit_code: int) -> None:
    assert failure_reason(node(case)) == Reason(failure_class, words, exit_code)


@pytest.mark.parametrize(
    ("case", "failure_class", "part"),
    [
        ("disk", C.OUT_OF_DISK, "Pod ephemeral local storage usage exceeds the total limit of containers 20Mi."),
        ("negative", C.ADMISSION, 'resources.requests[memory]: Invalid value: "-1"'),
        ("no-output", C.STORAGE, "could not be stored: open /var/run/argo/outputs"),
        ("no-program", C.STEP_KILLED, 'exec: "nosuchprogram": executable file not found in $PATH'),
    ],
)
def test_failure_reason_contains_message(case: str, failure_class: FailureClass, part: str) -> None:
    reason = failure_reason(node(case))
    assert reason is not None
    assert reason.failure_class is failure_class
    assert part in reason.text


@pytest.mark.parametrize(
    ("message", "failure_class"),
    [
        # kubelet: pkg/kubelet/eviction, nodeshutdown, preemption, lifecycle; controller: inferFailedReason
        ("The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi. ", C.EVICTED),
        ("The node had condition: [DiskPressure]. ", C.EVICTED),
        ("Usage of EmptyDir volume \"work\" exceeds the limit \"1Gi\". ", C.OUT_OF_DISK),
        ("Container main exceeded its local ephemeral storage limit \"20Mi\". ", C.OUT_OF_DISK),
        ("Pod was terminated in response to imminent node shutdown.", C.NODE_LOST),
        ("Node is shutting, evicting pods", C.NODE_LOST),
        ("Preempted in order to admit critical pod", C.PREEMPTED),
        ("Pod was rejected: Node didn't have enough resource: cpu, requested: 100, used: 1950, capacity: 2000",
         C.UNSCHEDULABLE),
        ("Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
         C.UNSCHEDULABLE),
        ("Pod was rejected as the node is shutting down.", C.NODE_LOST),
        ("can't find failed message for pod run-solve-1 namespace evals", C.NODE_LOST),
        ("Pod failed before main container starts due to ImagePullBackOff: Back-off pulling image \"x\"", C.IMAGE_PULL),
        ("Pod failed before wait container starts due to ContainerCreating: ", C.STEP_KILLED),
        ("Pod failed before main container starts due to CreateContainerConfigError: secret \"a\" not found", C.CONFIG),
        ("Step exceeded its deadline", C.STEP_TIMEOUT),
        ("pods \"run-solve-1\" is forbidden: exceeded quota: sandboxes, requested: pods=1", C.ADMISSION),
        ("pod failed: wait container did not complete successfully", C.STEP_KILLED),
        ("wait: OOMKilled (exit code 137)", C.OUT_OF_MEMORY),
        ("main: StartError (exit code 128): failed to create containerd task", C.STEP_KILLED),
        ("main: Error (exit code 64): failed to start command: context canceled", C.STEP_KILLED),
        ("main: Error (exit code 70): grade: KeyError: x", C.STEP_KILLED),  # of another program than the pod's
        ("main: Error (exit code 76): solve: the sandbox ran out of memory", C.OUT_OF_MEMORY),
        ("main: Error (exit code 64): context canceled", C.STEP_KILLED),
        ("something that nobody has seen yet", C.STEP_KILLED),
        ("", C.STEP_KILLED),
    ],
)  # fmt: skip
def test_failure_reason_has_kubelet_message(message: str, failure_class: FailureClass) -> None:
    assert failed(message).failure_class is failure_class


def test_failure_reason_ignores_steps() -> None:
    assert failed("main: Error (exit code 64): solve: the node was low on resource, evicted").failure_class is C.CONFIG


@pytest.mark.parametrize("code", [2, 64, 70, 75, 76, 139])  # 2: argoexec as pid 1, told to end before it listens
def test_silent_exit_is_killed_step(code: int) -> None:
    reason = failed(f"main: Error (exit code {code})")
    assert reason.failure_class is C.STEP_KILLED
    assert reason.exit_code not in (64, 70)


@pytest.mark.parametrize("phase", ["Succeeded", "Running", "Pending", "Skipped", "Omitted"])
def test_unfailed_node_has_no_reason(phase: str) -> None:
    assert failure_reason({"type": "Pod", "phase": phase, "message": "main: Error (exit code 1)"}) is None


def test_stopped_node_has_no_reason() -> None:
    assert failure_reason(node("stopped-before")) is None
    assert failure_reason({"phase": "Failed", "message": "Stopped with strategy 'Stop'"}) is None


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"phase": "Running"}, None),
        ({"phase": "Failed", "message": "Stopped with strategy 'Terminate'"}, None),
        (workflow("shard_without_template")["status"], C.CONFIG),
        ({"phase": "Failed", "message": "Step exceeded its deadline"}, C.STEP_TIMEOUT),
        ({"phase": "Error"}, C.CONFIG),
    ],
)
def test_failed_workflow_has_reason(status: dict[str, Any], expected: FailureClass | None) -> None:
    reason = workflow_failure_reason("run-s00001", status)
    assert (reason and reason.failure_class) == expected


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
