"""Waiting for a pod to run: by a watch, and by a fresh read whenever the watch ends."""

from __future__ import annotations

import time
from typing import Any

from swe_argo.steps.errors import StepError
from swe_argo.steps.sandbox.kubernetes.pod_start import start_failure
from swe_argo.steps.sandbox.kubernetes.pod_status import describe_events, gone_failure, ready
from swe_argo.steps.sandbox.kubernetes.pods import Pods

LOOK_S = 10.0
"""Seconds after which the pod is read again: a watch may fall silent without ending."""
_PAUSE_S = 0.2
"""Seconds before the pod is read again, so that watches that end at once cause no storm of requests."""


def started(pods: Pods, created: dict[str, Any], pending_s: float) -> dict[str, Any]:
    """Return the pod ``created`` once it is ready. Raises the ``start_failure``, with the pod's events."""
    began = time.monotonic()
    name, uid = created["metadata"]["name"], created["metadata"]["uid"]
    pod: dict[str, Any] | None = created
    while pod is not None and pod["metadata"]["uid"] == uid:
        waited_s = time.monotonic() - began
        if _decided(pods, pod, pending_s, waited_s):
            return pod
        for kind, current in pods.changes(pod, min(LOOK_S, max(pending_s - waited_s, 0) + 0.1)):
            if _decided(pods, current, pending_s, time.monotonic() - began):
                return current
            if kind == "DELETED":
                break
        time.sleep(_PAUSE_S)
        pod = pods.find(name)
    raise gone_failure(name, pods.events(uid))


def _decided(pods: Pods, pod: dict[str, Any], pending_s: float, waited_s: float) -> bool:
    """Return whether it runs. Raises StepError if it never will."""
    if ready(pod):
        return True
    error: StepError | None = start_failure(pod, pending_s, waited_s)
    if error is None:
        return False
    error.detail = f"{error.detail}\n{describe_events(pods.events(pod['metadata']['uid']))}".strip()
    raise error
