"""What a pod's status means, over statuses as a kubelet 1.34 and its cluster wrote them."""

from __future__ import annotations

from typing import Any

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError, ResourceError, StepError
from swe_argo.steps.sandbox.kubernetes.pod_status import (
    deletion_failure,
    ended_by_itself,
    failure,
    identity,
    image_digest,
    out_of_reach,
    ready,
)
from tests.steps.sandbox.kubernetes.statuses import (
    KILLED,
    OOM,
    OVER_LIMIT,
    READY,
    RUNNING,
    condition,
    disrupted,
    ended,
    pod,
    waiting,
)

LOST = [
    ("main killed for memory", pod("Failed", ended(OOM)), ResourceError, "OUT_OF_MEMORY", "limit of 64Mi"),
    (
        "child killed for memory",
        pod("Succeeded", ended({"exitCode": 0, "reason": "OOMKilled"})),
        ResourceError,
        "OUT_OF_MEMORY",
        "limit of 64Mi",
    ),
    (
        "its disk is full",
        pod(
            "Failed",
            {**ended({"exitCode": 137, "reason": "ContainerStatusUnknown"}), "restartCount": 1},
            condition("DisruptionTarget", "True", "TerminationByKubelet", OVER_LIMIT),
            reason="Evicted",
            message=OVER_LIMIT,
        ),
        ResourceError,
        "OUT_OF_DISK",
        "total limit of containers 20Mi",
    ),
    (
        "its jobs folder is full",
        pod(
            "Failed",
            ended(KILLED),
            reason="Evicted",
            message='Usage of EmptyDir volume "jobs" exceeds the limit "1M". ',
        ),
        ResourceError,
        "OUT_OF_DISK",
        '"jobs" exceeds the limit',
    ),
    (
        "its container's disk is full",
        pod(
            "Failed", reason="Evicted", message='Container sandbox exceeded its local ephemeral storage limit "20Mi". '
        ),
        ResourceError,
        "OUT_OF_DISK",
        "20Mi",
    ),
    (
        "the node is short of disk",
        pod(
            "Failed",
            ended(KILLED),
            reason="Evicted",
            message="The node was low on resource: ephemeral-storage. Threshold quantity: 10%, available: 8%. ",
        ),
        InfraError,
        "EVICTED",
        "low on resource",
    ),
    (
        "deadline",
        pod(
            "Failed",
            ended(KILLED),
            reason="DeadlineExceeded",
            message="Pod was active on the node longer than the specified deadline",
        ),
        InfraError,
        "SANDBOX_LOST",
        "deadline of 60 s",
    ),
    (
        "preempted",
        disrupted("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod"),
        InfraError,
        "PREEMPTED",
        "higher priority pod",
    ),
    (
        "evicted by the API",
        disrupted("EvictionByEvictionAPI", "Eviction API: evicting"),
        InfraError,
        "EVICTED",
        "Eviction API",
    ),
    (
        "evicted for a taint",
        disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
        InfraError,
        "EVICTED",
        "NoExecute taint",
    ),
    (
        "the node is gone",
        disrupted("DeletionByPodGC", "PodGC: node no longer exists"),
        InfraError,
        "NODE_LOST",
        "PodGC",
    ),
    (
        "the node shuts down",
        pod(
            "Failed",
            ended(KILLED),
            condition("DisruptionTarget", "True", "TerminationByKubelet", "Pod was terminated in response to imminent"),
            reason="Terminated",
            message="Pod was terminated in response to imminent node shutdown.",
        ),
        InfraError,
        "NODE_LOST",
        "imminent node shutdown",
    ),
    ("deleted", pod("Running", RUNNING, deleted=True), InfraError, "SANDBOX_LOST", "was deleted"),
    ("killed", pod("Failed", ended(KILLED)), InfraError, "SANDBOX_LOST", "exit code 137"),
    (
        "ended by itself",
        pod("Succeeded", ended({"exitCode": 0, "reason": "Completed"})),
        InfraError,
        "SANDBOX_LOST",
        "0",
    ),
    ("nobody knows", pod("Unknown", RUNNING, reason="NodeLost"), InfraError, "NODE_LOST", "node"),
]


@pytest.mark.parametrize(("title", "status", "kind", "failure_class", "words"), LOST, ids=[case[0] for case in LOST])
def test_failure_fits_each_status(
    title: str, status: Any, kind: type[StepError], failure_class: str, words: str
) -> None:
    error = failure(status)
    assert type(error) is kind
    assert error.failure_class is FailureClass[failure_class]
    assert words in error.reason
    assert "sb-1" in error.reason
    assert "\n" not in error.reason
    assert not ready(status)


def test_failure_quotes_kubernetes() -> None:
    error = failure(LOST[2][1])
    assert error is not None
    assert "Evicted: " + OVER_LIMIT in error.detail
    assert "container terminated 137: ContainerStatusUnknown" in error.detail


def test_ready_pod_has_no_failure() -> None:
    assert failure(READY) is None
    assert out_of_reach(READY) is None
    assert ready(READY)


def test_running_pod_may_be_unready() -> None:
    assert not ready(pod("Running", RUNNING, condition("Ready", "False", "ContainersNotReady")))
    assert not ready(pod("Pending", waiting("ContainerCreating")))
    assert not ready(pod("Pending"))


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_silent_node_is_lost_on_request(status: str) -> None:
    silent = pod("Running", RUNNING, condition("Ready", status, "NodeStatusUnknown", "Kubelet stopped posting"))
    assert failure(silent) is None  # it may be restarting
    error = out_of_reach(silent)
    assert error is not None
    assert error.failure_class is FailureClass.NODE_LOST
    assert "node0" in error.reason
    assert "Kubelet stopped posting" in error.detail


@pytest.mark.parametrize(
    ("reason", "message", "failure_class"),
    [
        ("Preempted", "Preempted by pod 0d8f on node node0", FailureClass.PREEMPTED),
        ("TaintManagerEviction", "Marking for deletion Pod ns/sb-1", FailureClass.EVICTED),
        ("Evicted", "The node was low on resource: memory.", FailureClass.EVICTED),
        ("Evicted", OVER_LIMIT, FailureClass.OUT_OF_DISK),
        ("NodeNotReady", "Node is not ready", FailureClass.NODE_LOST),
        ("Killing", "Stopping container sandbox", FailureClass.SANDBOX_LOST),
    ],
)
def test_events_explain_a_removed_pod(reason: str, message: str, failure_class: FailureClass) -> None:
    scheduled = {"reason": "Scheduled", "message": "Successfully assigned ns/sb-1 to node0"}
    error = deletion_failure("sb-1", [scheduled, {"reason": reason, "message": message}])
    assert error.failure_class is failure_class
    assert f"{reason}: {message}" in error.detail
    assert deletion_failure("sb-1", []).failure_class is FailureClass.SANDBOX_LOST


def test_last_event_explains_loss() -> None:
    away = {"reason": "NodeNotReady", "message": "Node is not ready"}
    preempted = {"reason": "Preempted", "message": "Preempted by pod 0d8f on node node0"}
    assert deletion_failure("sb-1", [away, preempted]).failure_class is FailureClass.PREEMPTED


def test_identity_is_per_container() -> None:
    again = pod("Running", {**RUNNING, "restartCount": 1}, condition("Ready"))
    other = pod("Running", {**RUNNING, "containerID": "containerd://b2"}, condition("Ready"))
    assert identity(READY) == identity(pod("Running", RUNNING))
    assert identity(again) != identity(READY) != identity(other)


@pytest.mark.parametrize(
    ("image_id", "digest"),
    [
        ("docker.io/library/x@sha256:ab", "sha256:ab"),
        ("docker-pullable://x@sha256:ab", "sha256:ab"),
        ("sha256:cd", "sha256:cd"),
        ("", None),
        ("x:latest", None),
    ],
)
def test_image_digest_is_the_running_one(image_id: str, digest: str | None) -> None:
    assert image_digest(pod("Running", {**RUNNING, "imageID": image_id})) == digest


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (pod("Failed", ended(KILLED)), True),
        (pod("Failed", ended({"exitCode": 2, "reason": "Error"})), True),
        (pod("Succeeded", ended({"exitCode": 0, "reason": "Completed"})), True),
        (pod("Running", RUNNING), False),
        (pod("Failed", ended(OOM)), False),
        (pod("Failed", ended({"exitCode": 137, "reason": "ContainerStatusUnknown"})), False),
        (pod("Failed", ended({"exitCode": 255, "reason": "Unknown"})), False),
        (pod("Failed", ended(KILLED), reason="Evicted", message="The node was low on resource: memory."), False),
        (pod("Failed", ended(KILLED), reason="DeadlineExceeded"), False),
        (pod("Failed", ended(KILLED), reason="NodeShutdown"), False),
        (pod("Failed", ended(KILLED), deleted=True), False),
        (pod("Failed", ended(KILLED), condition("DisruptionTarget", "True", "PreemptionByScheduler")), False),
        (None, False),
    ],
)
def test_own_end_excludes_disruptions(status: Any, expected: bool) -> None:
    assert ended_by_itself(status) is expected
