"""Diagnosis of a failed copy of an agent's files into a pod, from the pod object."""

from __future__ import annotations

from typing import Any

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError, ResourceError, StepError, one_line
from swe_argo.steps.sandbox.kubernetes.agent_files import agent_image
from swe_argo.steps.sandbox.kubernetes.pod_status import (
    describe_pod,
    format_reason,
    init_container,
    pod_failure,
    pod_label,
)


def copy_failure(pod: dict[str, Any]) -> StepError | None:
    """Return the failure of the init container that copies the files; None if it did not fail or does not exist.

    A cause that concerns the whole pod, such as an eviction, takes precedence. Otherwise it is a ConfigError for an
    image that cannot run, a ResourceError if memory or disk ran out, else an InfraError (SANDBOX_CREATE).
    """
    terminated = init_container(pod).get("terminated") or {}
    if not terminated or terminated.get("exitCode") == 0:
        return None
    error = pod_failure(pod)
    if error is not None and error.failure_class is not FailureClass.SANDBOX_LOST:
        return error
    return _copy_failure(pod, terminated)


def _copy_failure(pod: dict[str, Any], terminated: dict[str, Any]) -> StepError:
    """Return the failure by the container's end, ``terminated``: its reason and message."""
    words, detail = one_line(format_reason(terminated), 400), describe_pod(pod)
    if terminated.get("reason") == "OOMKilled":
        reason = f"{pod_label(pod)} ran out of memory while copying an agent's files"
        return ResourceError(FailureClass.OUT_OF_MEMORY, reason, detail=detail)
    if "no space left on device" in words:
        return ResourceError(FailureClass.OUT_OF_DISK, f"{pod_label(pod)} ran out of disk: {words}", detail=detail)
    if "exec format error" in words:
        reason = f"image {agent_image(pod)} is for another CPU architecture than the sandbox: {words}"
        return ConfigError(reason, field="agent.image", detail=detail)
    if "no such file or directory" in words and terminated.get("reason") != "Error":
        reason = (
            f"image {agent_image(pod)} has no copy program, which this cluster needs as it mounts no images: "
            f"push the image with swe-argo agents push: {words}"
        )
        return ConfigError(reason, field="agent.image", detail=detail)
    reason = f"{pod_label(pod)}: copying the agent's files failed: {words}"
    return InfraError(FailureClass.SANDBOX_CREATE, reason, detail=detail)
