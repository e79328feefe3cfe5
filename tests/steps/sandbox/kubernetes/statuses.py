"""Pods with statuses as a kubelet 1.34 and its cluster wrote them."""

from __future__ import annotations

from typing import Any

RUNNING = {"state": {"running": {"startedAt": "2025-01-01T00:00:01Z"}}, "containerID": "containerd://a1"}
OOM = {"exitCode": 137, "reason": "OOMKilled"}
KILLED = {"exitCode": 137, "reason": "Error"}
OVER_LIMIT = "Pod ephemeral local storage usage exceeds the total limit of containers 20Mi. "


def pod(phase: str, container: dict[str, Any] | None = None, *conditions: dict[str, str], **status: Any) -> Any:
    meta = {"deletionTimestamp": "2025-01-01T00:00:09Z"} if status.pop("deleted", False) else {}
    states = {"containerStatuses": [{"restartCount": 0, "name": "sandbox", **container}]} if container else {}
    return {
        "metadata": {"name": "sb-1", "uid": "u-1", **meta},
        "spec": {
            "nodeName": "node0",
            "activeDeadlineSeconds": 60,
            "containers": [{"image": "hub.example/x:1", "resources": {"limits": {"memory": "64Mi"}}}],
        },
        "status": {"phase": phase, "conditions": list(conditions), **states, **status},
    }


def condition(kind: str, status: str = "True", reason: str = "", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def ended(state: dict[str, Any]) -> dict[str, Any]:
    return {"state": {"terminated": state}, "containerID": "containerd://a1"}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason, "message": message}}}


def disrupted(reason: str, message: str) -> Any:
    return pod("Running", RUNNING, condition("DisruptionTarget", "True", reason, message), deleted=True)


READY = pod("Running", {**RUNNING, "ready": True}, condition("Ready"))
