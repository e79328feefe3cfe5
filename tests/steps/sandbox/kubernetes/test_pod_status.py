"""A pod's failure, over statuses as a kubelet 1.34 and its cluster wrote them: before it starts, and afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError, ResourceError, StepError
from swe_argo.steps.sandbox.kubernetes.pod_start import start_failure
from swe_argo.steps.sandbox.kubernetes.pods import (
    deletion_failure,
    ended_by_itself,
    identity,
    image_digest,
    is_ready,
    out_of_reach,
    pod_failure,
)

RUNNING = {"state": {"running": {"startedAt": "2025-01-01T00:00:01Z"}}, "containerID": "containerd://a1"}
OVER_LIMIT = "Pod ephemeral local storage usage exceeds the total limit of containers 20Mi. "
LOW = "The node was low on resource: ephemeral-storage. Threshold quantity: 10%, available: 8%. "


def pod(phase: str, container: dict[str, Any] | None = None, *conditions: dict[str, str], **status: Any) -> Any:
    meta = {"deletionTimestamp": "2025-01-01T00:00:09Z"} if status.pop("deleted", False) else {}
    states = {"containerStatuses": [{"restartCount": 0, "name": "sandbox", **container}]} if container else {}
    containers = [{"image": "hub.example/x:1", "resources": {"limits": {"memory": "64Mi"}}}]
    return {
        "metadata": {"name": "sb-1", "uid": "u-1", **meta},
        "spec": {"nodeName": "node0", "activeDeadlineSeconds": 60, "containers": containers},
        "status": {"phase": phase, "conditions": list(conditions), **states, **status},
    }


def condition(kind: str, status: str = "True", reason: str = "", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def ended(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    state = {"exitCode": code, "reason": reason, "message": message}
    return {"state": {"terminated": state}, "containerID": "containerd://a1"}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason, "message": message}}}


def disrupted(reason: str, message: str) -> Any:
    return pod("Running", RUNNING, condition("DisruptionTarget", "True", reason, message), deleted=True)


def failed(reason: str = "", message: str = "", container: dict[str, Any] | None = None, *conditions: Any) -> Any:
    return pod("Failed", container or ended(137), *conditions, reason=reason, message=message)


def by_kubelet(message: str) -> dict[str, str]:
    return condition("DisruptionTarget", "True", "TerminationByKubelet", message)


READY = pod("Running", {**RUNNING, "ready": True}, condition("Ready"))
FULL_DISK = failed("Evicted", OVER_LIMIT, ended(137, "ContainerStatusUnknown"), by_kubelet(OVER_LIMIT))
SHUTDOWN = "Pod was terminated in response to imminent node shutdown."

LOST = [
    (pod("Failed", ended(137, "OOMKilled")), "OUT_OF_MEMORY", "limit of 64Mi"),
    (FULL_DISK, "OUT_OF_DISK", "total limit of containers 20Mi"),
    (failed("Evicted", 'Usage of EmptyDir volume "jobs" exceeds the limit "1M". '), "OUT_OF_DISK", '"jobs" exceeds'),
    (failed("Evicted", 'Container sandbox exceeded its local ephemeral storage limit "20Mi". '), "OUT_OF_DISK", "20Mi"),
    (failed("Evicted", LOW), "EVICTED", "low on resource"),
    (failed("DeadlineExceeded", "Pod was active longer than specified"), "SANDBOX_LOST", "deadline of 60 s"),
    (disrupted("PreemptionByScheduler", "preempting to accommodate a higher priority pod"), "PREEMPTED", "higher"),
    (disrupted("EvictionByEvictionAPI", "Eviction API: evicting"), "EVICTED", "Eviction API"),
    (disrupted("DeletionByTaintManager", "deleting due to NoExecute taint"), "EVICTED", "NoExecute taint"),
    (disrupted("DeletionByPodGC", "PodGC: node no longer exists"), "NODE_LOST", "PodGC"),
    (failed("Terminated", SHUTDOWN, ended(137), by_kubelet(SHUTDOWN)), "NODE_LOST", "imminent node shutdown"),
    (pod("Running", RUNNING, deleted=True), "SANDBOX_LOST", "was deleted"),
    (failed(), "SANDBOX_LOST", "exit code 137"),
    (pod("Succeeded", ended(0, "Completed")), "SANDBOX_LOST", "0"),
    (pod("Unknown", RUNNING, reason="NodeLost"), "NODE_LOST", "node"),
]


@pytest.mark.parametrize(("status", "failure_class", "words"), LOST)
def test_failure_fits_each_status(status: Any, failure_class: str, words: str) -> None:
    error = pod_failure(status)
    assert type(error) is (ResourceError if failure_class.startswith("OUT_OF") else InfraError)
    assert error.failure_class is FailureClass[failure_class]
    assert words in error.reason
    assert "sb-1" in error.reason
    assert "\n" not in error.reason
    assert not is_ready(status)


def test_failure_quotes_kubernetes() -> None:
    error = pod_failure(FULL_DISK)
    assert error is not None
    assert "Evicted: " + OVER_LIMIT in error.detail
    assert "container terminated 137: ContainerStatusUnknown" in error.detail


def test_ready_pod_has_no_failure() -> None:
    assert (pod_failure(READY), out_of_reach(READY), is_ready(READY)) == (None, None, True)
    assert not is_ready(pod("Running", RUNNING, condition("Ready", "False", "ContainersNotReady")))
    assert not is_ready(pod("Pending", waiting("ContainerCreating")))
    assert not is_ready(pod("Pending"))


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_silent_node_is_lost_on_request(status: str) -> None:
    silent = pod("Running", RUNNING, condition("Ready", status, "NodeStatusUnknown", "Kubelet stopped posting"))
    assert pod_failure(silent) is None  # it may be restarting
    error = out_of_reach(silent)
    assert error is not None
    assert (error.failure_class, "node0" in error.reason) == (FailureClass.NODE_LOST, True)
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
def test_last_event_explains_a_removed_pod(reason: str, message: str, failure_class: FailureClass) -> None:
    scheduled = {"reason": "Scheduled", "message": "Successfully assigned ns/sb-1 to node0"}
    away = {"reason": "NodeNotReady", "message": "Node is not ready"}
    last = {"reason": reason, "message": message}
    for events in ([scheduled, last], [scheduled, away, last] if reason == "Preempted" else [last]):
        error = deletion_failure("sb-1", events)
        assert error.failure_class is failure_class
        assert f"{reason}: {message}" in error.detail
    assert deletion_failure("sb-1", []).failure_class is FailureClass.SANDBOX_LOST


def test_identity_is_per_container() -> None:
    again = pod("Running", {**RUNNING, "restartCount": 1}, condition("Ready"))
    other = pod("Running", {**RUNNING, "containerID": "containerd://b2"}, condition("Ready"))
    assert identity(READY) == identity(pod("Running", RUNNING))
    assert identity(again) != identity(READY) != identity(other)


@pytest.mark.parametrize(
    ("image_id", "digest"),
    [("docker.io/library/x@sha256:ab", "sha256:ab"), ("sha256:cd", "sha256:cd"), ("", None), ("x:latest", None)],
)
def test_image_digest_is_the_running_one(image_id: str, digest: str | None) -> None:
    assert image_digest(pod("Running", {**RUNNING, "imageID": image_id})) == digest


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (failed(), True),
        (pod("Failed", ended(2)), True),
        (pod("Succeeded", ended(0, "Completed")), True),
        (pod("Running", RUNNING), False),
        (pod("Failed", ended(137, "OOMKilled")), False),
        (pod("Failed", ended(137, "ContainerStatusUnknown")), False),
        (pod("Failed", ended(255, "Unknown")), False),
        (failed("Evicted", "The node was low on resource: memory."), False),
        (failed("DeadlineExceeded"), False),
        (failed("NodeShutdown"), False),
        (pod("Failed", ended(137), deleted=True), False),
        (pod("Failed", ended(137), condition("DisruptionTarget", "True", "PreemptionByScheduler")), False),
        (None, False),
    ],
)
def test_own_end_excludes_disruptions(status: Any, expected: bool) -> None:
    assert ended_by_itself(status) is expected


# -- before the container runs

UNSCHEDULABLE = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption"
NOT_FOUND = 'failed to resolve reference "docker.io/library/none:1": docker.io/library/none:1: not found'
REFUSED = 'failed to do request: Head "https://localhost/v2/none/manifests/1": dial tcp: connect: connection refused'
RATE = "unexpected status code https://hub/v2/x/manifests/1: 429 Too Many Requests - Server message: toomanyrequests"


def unstarted(message: str) -> Any:
    return failed("", "", ended(128, "StartError", message))


def start_error(status: Any, waited_s: float = 1, limit_s: float = 900) -> StepError:
    error = start_failure(status, limit_s, waited_s)
    assert error is not None
    return error


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("ErrImageNeverPull", 'Container image "localhost/none:1" is not present with pull policy of Never'),
        ("InvalidImageName", "couldn't parse image name: invalid reference format"),
        ("ErrImagePull", NOT_FOUND),
        ("ImagePullBackOff", f'Back-off pulling image "none:1": ErrImagePull: {NOT_FOUND}'),
        ("ErrImagePull", "pull access denied, repository does not exist or may require authorization"),
        ("ErrImagePull", "unexpected status from HEAD request to https://r.example/v2/x/manifests/1: 401 Unauthorized"),
        ("ErrImagePull", "no match for platform in manifest: not found"),
    ],
)
def test_missing_image_is_a_config_error(reason: str, message: str) -> None:
    error = start_error(pod("Pending", waiting(reason, message)), 0)
    assert isinstance(error, ConfigError)
    assert error.failure_class is FailureClass.IMAGE_MISSING
    assert "hub.example/x:1" in error.reason
    assert message in error.detail


@pytest.mark.parametrize(
    ("status", "failure_class", "words"),
    [
        *[
            (pod("Pending", waiting("ErrImagePull", message), condition("PodScheduled")), "IMAGE_PULL", message[:60])
            for message in (REFUSED, RATE, "context deadline exceeded")
        ],
        (
            pod("Pending", None, condition("PodScheduled", "False", "", UNSCHEDULABLE)),
            "UNSCHEDULABLE",
            "1 Insufficient cpu",
        ),
        (pod("Pending"), "UNSCHEDULABLE", "sb-1"),
        (
            pod("Pending", waiting("CreateContainerError", "no space"), condition("PodScheduled")),
            "SANDBOX_CREATE",
            "no sp",
        ),
    ],
)
def test_start_is_waited_for(status: Any, failure_class: str, words: str) -> None:
    assert start_failure(status, 60, 59) is None
    error = start_error(status, 61, 60)
    assert isinstance(error, InfraError)
    assert (error.failure_class, words in error.reason) == (FailureClass[failure_class], True)


@pytest.mark.parametrize(
    ("status", "kind", "failure_class", "words"),
    [
        (unstarted('exec: "/bin/sh": stat /bin/sh: no such file'), ConfigError, "IMAGE_MISSING", "/bin/sh"),
        (unstarted("container init was OOM-killed (memory limit too low?)"), ResourceError, "OUT_OF_MEMORY", ""),
        (unstarted("cgroup: device busy"), InfraError, "SANDBOX_CREATE", ""),
        (pod("Failed", reason="OutOfcpu", message="Not enough resource: cpu"), InfraError, "UNSCHEDULABLE", "OutOfcpu"),
        (disrupted("PreemptionByScheduler", "preempting"), InfraError, "PREEMPTED", ""),
        (failed("DeadlineExceeded", "Pod was active"), InfraError, "SANDBOX_CREATE", "deadline of 60 s"),
    ],
)
def test_failed_start_has_its_class(status: Any, kind: type[StepError], failure_class: str, words: str) -> None:
    error = start_error(status, 61)
    assert (type(error), error.failure_class) == (kind, FailureClass[failure_class])
    assert words in error.reason


# -- an agent's files

AGENT = f"registry.example.com/codex@sha256:{'a' * 64}"


def with_agent(status: Any, state: Any = None, *, volume: bool = False) -> Any:
    """Return the pod with an agent's files: from a volume, or from an init container in some state."""
    if volume:
        status["spec"]["volumes"] = [{"name": "agent-files", "image": {"reference": AGENT}}]
        return status
    status["spec"]["initContainers"] = [{"name": "agent-files", "image": AGENT}]
    status["status"]["initContainerStatuses"] = [{"name": "agent-files", **state}]
    return status


def test_failed_image_is_named_of_two() -> None:
    words = f'failed to pull and unpack image "{AGENT}": failed to resolve reference "{AGENT}": not found'
    initializing = waiting("PodInitializing")
    for status in (
        with_agent(pod("Pending", initializing), waiting("ErrImagePull", words)),
        with_agent(pod("Pending", waiting("ErrImagePull", words)), volume=True),
    ):
        error = start_error(status, 0)
        assert isinstance(error, ConfigError)
        assert error.reason.startswith(f"image {AGENT} does not exist")
    own = start_error(with_agent(pod("Pending", waiting("ErrImagePull", NOT_FOUND)), volume=True), 0)
    assert own.reason.startswith("image hub.example/x:1 does not exist")
    away = with_agent(pod("Pending", initializing, condition("PodScheduled")), waiting("ErrImagePull", "EOF"))
    assert start_failure(away, 900, 0) is None
    late = start_error(away, 900)
    assert (late.failure_class, AGENT in late.reason) == (FailureClass.IMAGE_PULL, True)


@pytest.mark.parametrize(
    ("reason", "message", "kind", "expected"),
    [
        ("StartError", "exec /.swe-argo/copy: exec format error", ConfigError, "is for another CPU architecture"),
        ("StartError", "stat /.swe-argo/copy: no such file or directory", ConfigError, "has no copy program"),
        ("Error", "exec /.swe-argo/copy: exec format error", ConfigError, "is for another CPU architecture"),
        ("Error", "write /.swe-argo/files/a: no space left on device", ResourceError, "ran out of disk"),
        ("OOMKilled", "", ResourceError, "ran out of memory"),
        ("Error", "open /a: input/output error", InfraError, "copying the agent's files failed: Error: open /a: input"),
    ],
)
def test_failed_copy_has_a_reason(reason: str, message: str, kind: type[Exception], expected: str) -> None:
    error = start_error(with_agent(pod("Failed", waiting("PodInitializing")), ended(1, reason, message)))
    assert isinstance(error, kind)
    assert expected in error.reason
    assert message in error.detail


def test_running_copy_is_waited_for() -> None:
    states: list[Any] = [ended(0, "Completed"), {"state": {"running": {}}}]
    for state in states:
        assert start_failure(with_agent(pod("Pending", waiting("PodInitializing")), state), 900, 0) is None


def test_eviction_during_copy_has_its_class() -> None:
    evicted = pod("Failed", None, reason="Evicted", message="The node was low on resource: memory")
    assert start_error(with_agent(evicted, ended(137))).failure_class is FailureClass.EVICTED
