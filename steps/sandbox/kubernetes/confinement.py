"""Proof that a sandbox without network has none: without an enforcing plugin NetworkPolicies have no effect."""

from __future__ import annotations

import time

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.kubernetes.pod import KubernetesPod

SETTLE_S = 75.0
"""Seconds until a policy may come into force after its pod has started (e.g. AWS VPC CNI in its standard mode).

After an outage of the API server it may take a minute: policy controllers watch policies by client-go, whose reflector
retries after up to 30 s and as much random delay (client-go's tools/cache/reflector.go).
"""
PAUSE_S = 0.5

# Every pod is told the API server's address, which answers within a millisecond or so if nothing is dropped.
_CANARY = """timeout 0.5 bash -c 'echo on; exec 3<>/dev/tcp/$KUBERNETES_SERVICE_HOST/$KUBERNETES_SERVICE_PORT' 2>&1
case $? in 0) echo reached;; *) echo kept in;; esac"""


def prove_confined(transport: KubernetesPod, namespace: str, *, settle_s: float = SETTLE_S) -> None:
    """Try to reach the API server from inside until that fails twice in a row: a busy node may cause one failure.

    Raises ConfigError if it stays reachable, InfraError.
    """
    until, kept_in = time.monotonic() + settle_s, 0
    while True:
        _, output = transport.short_exec(_CANARY, wait_s=1.0)
        last = output.decode("utf-8", "replace").strip()
        tried = last.startswith("on\n") and "No such file or directory" not in last
        kept_in = kept_in + 1 if tried and last.endswith("kept in") else 0
        if kept_in == 2:
            return
        if not kept_in:
            if time.monotonic() > until:
                break
            time.sleep(PAUSE_S)
    if last.endswith("reached"):
        why = f"nothing enforces a NetworkPolicy for sandboxes in namespace {namespace}"
    else:
        why = f"whether sandboxes in namespace {namespace} are confined cannot be tried"
    raise ConfigError(
        f"{why}, so an agent could reach the cluster: install the chart, on a network that enforces policies, "
        "or use --allow-host",
        field="sandbox.backend",
        failure_class=FailureClass.CONFIG,
        detail=last,
    )


def reaches_cluster(transport: KubernetesPod, namespace: str, *, settle_s: float = SETTLE_S) -> bool:
    """Return whether a sandbox requested without network has, or may have, one. Raises InfraError."""
    try:
        prove_confined(transport, namespace, settle_s=settle_s)
    except ConfigError:
        return True
    return False
