"""Test that a sandbox without network has none, since NetworkPolicies need a plugin that enforces them."""

from __future__ import annotations

import time

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.kubernetes.pod import KubernetesPod

SETTLE_S = 75.0
"""Seconds after a pod's start until a policy may be in force (e.g. AWS VPC CNI in its standard mode).

After an outage of the API server it may take a minute: policy controllers watch policies by client-go, whose reflector
retries after up to 30 s and as much random delay (client-go's tools/cache/reflector.go).
"""
PAUSE_S = 0.5

# The script connects to the API server, whose address every pod has, and which answers within about a millisecond
# unless packets are dropped. It prints "on" first, as proof that bash ran.
_CANARY = """timeout 0.5 bash -c 'echo on; exec 3<>/dev/tcp/$KUBERNETES_SERVICE_HOST/$KUBERNETES_SERVICE_PORT' 2>&1
case $? in 0) echo reached;; *) echo kept in;; esac"""


def verify_confined(transport: KubernetesPod, namespace: str, *, settle_s: float = SETTLE_S) -> None:
    """Try to reach the API server from inside until that fails twice in a row; a busy node may cause one failure.

    Raises ConfigError if it can still be reached after ``settle_s`` or cannot be tested, InfraError if the pod fails.
    """
    until, failures = time.monotonic() + settle_s, 0
    while True:
        _, output = transport.short_exec(_CANARY, wait_s=1.0)
        last = output.decode("utf-8", "replace").strip()
        is_valid = last.startswith("on\n") and "No such file or directory" not in last
        failures = failures + 1 if is_valid and last.endswith("kept in") else 0
        if failures == 2:
            return
        if not failures:
            if time.monotonic() > until:
                break
            time.sleep(PAUSE_S)
    if last.endswith("reached"):
        why = f"nothing enforces a NetworkPolicy for sandboxes in namespace {namespace}"
    else:
        why = f"the network confinement of sandboxes in namespace {namespace} could not be tested"
    raise ConfigError(
        f"{why}, so an agent could reach the cluster: install the chart, on a network that enforces policies, "
        "or use --allow-host",
        field="sandbox.backend",
        failure_class=FailureClass.CONFIG,
        detail=last,
    )


def reaches_cluster(transport: KubernetesPod, namespace: str, *, settle_s: float = SETTLE_S) -> bool:
    """Return whether a sandbox requested without network may have network. Raises InfraError if the pod fails."""
    try:
        verify_confined(transport, namespace, settle_s=settle_s)
    except ConfigError:
        return True
    return False
