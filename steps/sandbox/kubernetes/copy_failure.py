"""Diagnosis of a failed copy of an agent's files into a pod: a pure function of the object, a plain dict."""

from __future__ import annotations

from typing import Any

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError, ResourceError, StepError, one_line
from swe_argo.steps.sandbox.kubernetes.agent_files import agent_image
from swe_argo.steps.sandbox.kubernetes.pod_status import describe_pod, failure, format_reason, init_container, pod_label


def copy_failure(pod: dict[str, Any]) -> StepError | None:
    """Return why the init container failed; None if it did not, or there is none.

    ConfigError (an image for another processor, or without the program that copies), ResourceError (memory, disk),
    InfraError (SANDBOX_CREATE, or the result of ``failure`` for the pod as a whole).
    """
    terminated = init_container(pod).get("terminated") or {}
    if not terminated or terminated.get("exitCode") == 0:
        return None
    error = failure(pod)
    if error is not None and error.failure_class is not FailureClass.SANDBOX_LOST:
        return error
    return _copy_failure(pod, terminated)


def _copy_failure(pod: dict[str, Any], terminated: dict[str, Any]) -> StepError:
    words, detail = one_line(format_reason(terminated), 400), describe_pod(pod)
    if terminated.get("reason") == "OOMKilled":
        reason = f"{pod_label(pod)} ran out of memory while an agent's files were copied"
        return ResourceError(FailureClass.OUT_OF_MEMORY, reason, detail=detail)
    if "no space left on device" in words:
        return ResourceError(FailureClass.OUT_OF_DISK, f"{pod_label(pod)} ran out of disk: {words}", detail=detail)
    if "exec format error" in words:
        reason = f"image {agent_image(pod)} is for another processor than that of the sandbox: {words}"
        return ConfigError(reason, field="agent.image", detail=detail)
    if "no such file or directory" in words and terminated.get("reason") != "Error":
        reason = (
            f"image {agent_image(pod)} has no program that copies its files, and this cluster mounts no images: "
            f"swe-argo agents push makes one that has: {words}"
        )
        return ConfigError(reason, field="agent.image", detail=detail)
    reason = f"{pod_label(pod)}: the agent's files were not copied: {words}"
    return InfraError(FailureClass.SANDBOX_CREATE, reason, detail=detail)
