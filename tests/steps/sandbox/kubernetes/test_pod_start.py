"""Whether a pod will ever start, over statuses as a kubelet 1.34 and its cluster wrote them."""

from __future__ import annotations

from typing import Any

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError, ResourceError
from swe_argo.steps.sandbox.kubernetes.pod_start import start_failure
from tests.steps.sandbox.kubernetes.statuses import condition, disrupted, ended, pod, waiting

UNSCHEDULABLE = (
    "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: "
    "1 No preemption victims found for incoming pod."
)
NOT_FOUND = (
    'failed to pull and unpack image "docker.io/library/none:1": failed to resolve reference '
    '"docker.io/library/none:1": docker.io/library/none:1: not found'
)
REFUSED = (
    'failed to pull and unpack image "localhost/none:1": failed to resolve reference "localhost/none:1": failed to do '
    'request: Head "https://localhost/v2/none/manifests/1": dial tcp [::1]:443: connect: connection refused'
)
RATE = (
    "failed to copy: httpReadSeeker: failed open: unexpected status code https://hub/v2/x/manifests/1: 429 Too Many "
    "Requests - Server message: toomanyrequests: You have reached your unauthenticated pull rate limit."
)
NO_SHELL = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
    'unable to start container process: exec: "/bin/sh": stat /bin/sh: no such file or directory: unknown'
)
INIT_OOM = (
    "failed to create shim task: OCI runtime create failed: container init was OOM-killed (memory limit too low?)"
)

NEVER = [
    ("ErrImageNeverPull", 'Container image "localhost/none:1" is not present with pull policy of Never'),
    (
        "InvalidImageName",
        'Failed to apply default image tag "X Y": couldn\'t parse image name: invalid reference format',
    ),
    ("ErrImagePull", NOT_FOUND),
    ("ErrImagePull", f"rpc error: code = NotFound desc = {NOT_FOUND}"),
    ("ImagePullBackOff", f'Back-off pulling image "none:1": ErrImagePull: {NOT_FOUND}'),
    ("ErrImagePull", "reading manifest 1 in docker.io/library/none: manifest unknown"),
    ("ErrImagePull", "pull access denied, repository does not exist or may require authorization: insufficient_scope"),
    ("ErrImagePull", "unexpected status from HEAD request to https://r.example/v2/x/manifests/1: 401 Unauthorized"),
    ("ErrImagePull", "no match for platform in manifest: not found"),
]


@pytest.mark.parametrize(("reason", "message"), NEVER)
def test_missing_image_is_a_config_error(reason: str, message: str) -> None:
    error = start_failure(pod("Pending", waiting(reason, message)), 900, 0)
    assert isinstance(error, ConfigError)
    assert error.failure_class is FailureClass.IMAGE_MISSING
    assert "hub.example/x:1" in error.reason
    assert message in error.detail


@pytest.mark.parametrize("message", [REFUSED, RATE, "context deadline exceeded", "dial tcp: lookup r: no such host"])
@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff"])
def test_failed_pull_is_waited_for(reason: str, message: str) -> None:
    pulling = pod("Pending", waiting(reason, message), condition("PodScheduled"))
    assert start_failure(pulling, 60, 59) is None
    error = start_failure(pulling, 60, 60)
    assert isinstance(error, InfraError)
    assert error.failure_class is FailureClass.IMAGE_PULL
    assert message[:60] in error.reason


def test_unscheduled_pod_is_explained() -> None:
    stuck = pod("Pending", None, condition("PodScheduled", "False", "Unschedulable", UNSCHEDULABLE))
    assert start_failure(stuck, 60, 10) is None
    error = start_failure(stuck, 60, 61)
    assert isinstance(error, InfraError)
    assert error.failure_class is FailureClass.UNSCHEDULABLE
    assert "1 Insufficient cpu" in error.reason
    nobody = start_failure(pod("Pending"), 60, 61)
    assert nobody is not None
    assert nobody.failure_class is FailureClass.UNSCHEDULABLE


def test_slow_container_is_not_created() -> None:
    slow = pod("Pending", waiting("CreateContainerError", "context deadline exceeded"), condition("PodScheduled"))
    assert start_failure(slow, 60, 10) is None
    error = start_failure(slow, 60, 61)
    assert error is not None
    assert error.failure_class is FailureClass.SANDBOX_CREATE
    assert "node0" in error.reason
    assert "context deadline exceeded" in error.reason


def start_error(message: str) -> Any:
    return pod("Failed", ended({"exitCode": 128, "reason": "StartError", "message": message}))


def test_no_shell_is_config_error() -> None:
    error = start_failure(start_error(NO_SHELL), 900, 1)
    assert isinstance(error, ConfigError)
    assert "/bin/sh" in error.reason


def test_tiny_limit_is_out_of_memory() -> None:
    error = start_failure(start_error(INIT_OOM), 900, 1)
    assert isinstance(error, ResourceError)
    assert error.failure_class is FailureClass.OUT_OF_MEMORY


def test_unknown_error_is_infra_error() -> None:
    error = start_failure(start_error("failed to create shim task: cgroup: device busy"), 900, 1)
    assert type(error) is InfraError
    assert error.failure_class is FailureClass.SANDBOX_CREATE


def test_full_node_is_unschedulable() -> None:
    message = "Pod was rejected: Node didn't have enough resource: cpu, requested: 500, used: 1900, capacity: 2000"
    error = start_failure(pod("Failed", reason="OutOfcpu", message=message), 900, 1)
    assert isinstance(error, InfraError)
    assert error.failure_class is FailureClass.UNSCHEDULABLE
    assert "OutOfcpu" in error.reason


def test_disruption_has_its_class() -> None:
    error = start_failure(disrupted("PreemptionByScheduler", "preempting"), 900, 1)
    assert error is not None
    assert error.failure_class is FailureClass.PREEMPTED
    late = start_failure(pod("Failed", reason="DeadlineExceeded", message="Pod was active"), 900, 61)
    assert late is not None
    assert (late.failure_class, "deadline of 60 s" in late.reason) == (FailureClass.SANDBOX_CREATE, True)


AGENT = f"registry.example.com/codex@sha256:{'a' * 64}"


def with_agent(status: Any, state: Any = None, *, volume: bool = False) -> Any:
    """The pod with an agent's files: of a volume, or of an init container that is in some state."""
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
        error = start_failure(status, 900, 0)
        assert isinstance(error, ConfigError)
        assert error.reason.startswith(f"image {AGENT} does not exist")
        assert error.failure_class is FailureClass.IMAGE_MISSING
    own = start_failure(with_agent(pod("Pending", waiting("ErrImagePull", NOT_FOUND)), volume=True), 900, 0)
    assert own is not None
    assert own.reason.startswith("image hub.example/x:1 does not exist")
    away = with_agent(pod("Pending", initializing, condition("PodScheduled")), waiting("ErrImagePull", "EOF"))
    assert start_failure(away, 900, 0) is None
    late = start_failure(away, 900, 900)
    assert isinstance(late, InfraError)
    assert (late.failure_class, AGENT in late.reason) == (FailureClass.IMAGE_PULL, True)


COPIES = [
    ("StartError", "exec /.swe-argo/copy: exec format error", ConfigError, "is for another CPU architecture"),
    (
        "StartError",
        'exec: "/.swe-argo/copy": stat /.swe-argo/copy: no such file or directory',
        ConfigError,
        "has no copy program",
    ),
    ("Error", "exec /.swe-argo/copy: exec format error", ConfigError, "is for another CPU architecture"),
    ("Error", "write /.swe-argo/files/a: no space left on device", ResourceError, "ran out of disk"),
    ("OOMKilled", "", ResourceError, "ran out of memory"),
    (
        "Error",
        "open /a: input/output error",
        InfraError,
        "copying the agent's files failed: Error: open /a: input/output error",
    ),
]


@pytest.mark.parametrize(("reason", "message", "kind", "expected"), COPIES)
def test_failed_copy_has_a_reason(reason: str, message: str, kind: type[Exception], expected: str) -> None:
    state = ended({"exitCode": 1, "reason": reason, "message": message})
    error = start_failure(with_agent(pod("Failed", waiting("PodInitializing")), state), 900, 0)
    assert isinstance(error, kind)
    assert expected in error.reason
    assert message in error.detail


def test_running_copy_is_waited_for() -> None:
    states: list[Any] = [ended({"exitCode": 0, "reason": "Completed"}), {"state": {"running": {}}}]
    for state in states:
        assert start_failure(with_agent(pod("Pending", waiting("PodInitializing")), state), 900, 0) is None


def test_eviction_during_copy_is_known() -> None:
    state = ended({"exitCode": 137, "reason": "Error"})
    status = with_agent(pod("Failed", None, reason="Evicted", message="The node was low on resource: memory"), state)
    error = start_failure(status, 900, 0)
    assert error is not None
    assert error.failure_class is FailureClass.EVICTED
