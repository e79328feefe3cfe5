"""Wait for a pod to run, by a watch and by a read whenever the watch ends."""

from __future__ import annotations

import time
from typing import Any

from swe_argo.steps.errors import StepError
from swe_argo.steps.sandbox.kubernetes.pod_start import start_failure
from swe_argo.steps.sandbox.kubernetes.pod_status import deletion_failure, describe_events, is_ready
from swe_argo.steps.sandbox.kubernetes.pods import Pods

LOOK_S = 10.0
"""Seconds between reads of the pod, since a watch may fall silent without ending."""
_PAUSE_S = 0.2
"""Minimum seconds between reads, in case watches end at once."""


def wait_until_ready(pods: Pods, created: dict[str, Any], pending_s: float) -> dict[str, Any]:
    """Wait until the pod ``created`` is ready; return its current object.

    ``pending_s``: maximum seconds to wait. Raises ``start_failure``, with the pod's events, or ``deletion_failure``.
    """
    began = time.monotonic()
    name, uid = created["metadata"]["name"], created["metadata"]["uid"]
    pod: dict[str, Any] | None = created
    while pod is not None and pod["metadata"]["uid"] == uid:
        waited_s = time.monotonic() - began
        if _is_running(pods, pod, pending_s, waited_s):
            return pod
        for kind, current in pods.changes(pod, min(LOOK_S, max(pending_s - waited_s, 0) + 0.1)):
            if _is_running(pods, current, pending_s, time.monotonic() - began):
                return current
            if kind == "DELETED":
                break
        time.sleep(_PAUSE_S)
        pod = pods.find(name)
    raise deletion_failure(name, pods.events(uid))


def _is_running(pods: Pods, pod: dict[str, Any], pending_s: float, waited_s: float) -> bool:
    """Return whether the pod runs. Raises StepError if it never will."""
    if is_ready(pod):
        return True
    error: StepError | None = start_failure(pod, pending_s, waited_s)
    if error is None:
        return False
    error.detail = f"{error.detail}\n{describe_events(pods.events(pod['metadata']['uid']))}".strip()
    raise error
