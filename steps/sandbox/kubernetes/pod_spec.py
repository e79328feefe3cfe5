"""The pod of a sandbox, as the plain dict that is sent."""

from __future__ import annotations

import hashlib
import math
import re
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from swe_argo.steps.contracts.images import through_registry
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.kubernetes.namespace import NamespaceSettings
from swe_argo.steps.sandbox.protocol import SandboxRequest
from swe_argo.steps.settings import settings

CONTAINER = "sandbox"
JOBS_ROOT = "/run/swe-argo"
LABEL = "swe-argo"

# PID 1, so that no command can kill it (agents do run `kill -9 -1`) and orphans are reaped. It ignores other signals:
# one with a handler, its own or its shell's, would reach PID 1 from inside the container too.
KEEP_ALIVE = "trap '' HUP INT QUIT PIPE ALRM TERM USR1 USR2; while :; do sleep 10; done"
GRACE_S = 1
"""Nothing in a sandbox needs time to shut down."""

_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")


def manifest(
    request: SandboxRequest, namespace: NamespaceSettings, sandbox_spec: SandboxSpec, owner: dict[str, str] | None
) -> dict[str, Any]:
    """Return the pod manifest; the spec overrides the namespace's settings.

    Raises ConfigError for an invalid node selector.
    """
    spec = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": max(1, math.ceil(request.deadline_s)),
        "terminationGracePeriodSeconds": GRACE_S,
        "serviceAccountName": namespace.service_account_name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}},
        "nodeSelector": _node_selector(request, namespace, sandbox_spec),
        "tolerations": namespace.tolerations,
        "priorityClassName": namespace.priority_class_name,
        "runtimeClassName": namespace.runtime_class_name,
        "imagePullSecrets": [{"name": name} for name in namespace.image_pull_secrets],
        **_names(request.network, namespace.nameservers),
        "containers": [_container(request, namespace)],
        "volumes": [{"name": "jobs", "emptyDir": {"sizeLimit": _grown(namespace.jobs_size_limit, request)}}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": request.name,
            "labels": labels(request),
            "annotations": _annotations(request),
            **({"ownerReferences": [owner]} if owner else {}),
        },
        "spec": {key: value for key, value in spec.items() if value not in (None, [])},
    }


def labels(request: SandboxRequest) -> dict[str, str]:
    """Return the labels by which a sandbox is found, and which NetworkPolicies select."""
    own = {f"{LABEL}/{key}": label(value) for key, value in request.labels.items()}
    return {**own, f"{LABEL}/network": "open" if request.network else "none"}


def label(text: str) -> str:
    """Return ``text`` as a label value (63 characters of letters, digits, ``-_.``); a changed one ends in a digest."""
    if _LABEL_VALUE.fullmatch(text):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    head = re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:54].strip("._-")
    return f"{head}-{digest}" if head else digest


def owner_reference() -> dict[str, str] | None:
    """Return the owner of this process' sandboxes: the runner's Lease, the step's own pod, or None.

    The garbage collector at once removes an object whose owner is not in the same namespace under this very uid.
    """
    environment = settings()
    if environment.lease:
        name, _, uid = environment.lease.partition("/")
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": name, "uid": uid}
    if environment.pod_name and environment.pod_uid:
        return {"apiVersion": "v1", "kind": "Pod", "name": environment.pod_name, "uid": environment.pod_uid}
    return None


def _annotations(request: SandboxRequest) -> dict[str, str]:
    return {
        f"{LABEL}/instance": request.labels.get("instance", ""),
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
    }


def _container(request: SandboxRequest, namespace: NamespaceSettings) -> dict[str, Any]:
    # Without network there is no use for raw packets, which could forge a sender's address.
    powers = {"add": ["SYS_ADMIN"] if request.browsers else [], "drop": [] if request.network else ["NET_RAW"]}
    capabilities = {kind: names for kind, names in powers.items() if names}
    return {
        "name": CONTAINER,
        "image": through_registry(request.image, request.registry or namespace.registry),
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", KEEP_ALIVE],
        "args": [],
        "workingDir": "/",  # the runtime would create a missing folder: an image without /testbed must show
        "resources": resources(request, namespace),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            **({"capabilities": capabilities} if capabilities else {}),
        },
        "volumeMounts": [{"name": "jobs", "mountPath": JOBS_ROOT}],
    }


def resources(request: SandboxRequest, namespace: NamespaceSettings) -> dict[str, dict[str, str]]:
    """Return requests and limits: a run's limits override the namespace's and bound requests, all times the factor."""
    defaults = namespace.resources
    wished = {
        "cpu": str(request.cpus) if request.cpus else defaults.limits.cpu,
        "memory": f"{request.memory_mb}Mi" if request.memory_mb else defaults.limits.memory,
        "ephemeral-storage": f"{request.disk_mb}Mi" if request.disk_mb else defaults.limits.ephemeral_storage,
    }
    request_amounts = {
        "cpu": defaults.requests.cpu,
        "memory": defaults.requests.memory,
        "ephemeral-storage": defaults.requests.ephemeral_storage,
    }
    limits = {key: value for key, value in wished.items() if value}
    requests = {
        key: min(value, limits.get(key, value), key=parse_quantity) for key, value in request_amounts.items() if value
    }
    return {
        "requests": {key: _grown(value, request) for key, value in requests.items()},
        "limits": {key: _grown(value, request) for key, value in limits.items()},
    }


def _grown(quantity: str, request: SandboxRequest) -> str:
    """Return a quantity times the resource factor, in whole millis if small (cpu), else in whole units."""
    amount = float(parse_quantity(quantity)) * request.resource_factor
    if amount < 1 << 20:
        return str(int(amount)) if amount == int(amount) else f"{math.ceil(amount * 1000)}m"
    whole = math.ceil(amount)
    return f"{whole >> 20}Mi" if whole % (1 << 20) == 0 else str(whole)


def _node_selector(request: SandboxRequest, namespace: NamespaceSettings, spec: SandboxSpec) -> dict[str, str]:
    system, _, rest = request.platform.partition("/")
    labels = dict(namespace.node_selector)
    if spec.kubernetes.node_selector:
        pairs = [each.partition("=") for each in spec.kubernetes.node_selector]
        for key, equals, value in pairs:
            if not key or not equals or not _LABEL_VALUE.fullmatch(value):
                raise ConfigError(
                    f"{key + equals + value!r} is not key=value", field="sandbox.kubernetes.node_selector"
                )
        labels = {key: value for key, _, value in pairs}
    return {"kubernetes.io/os": system, "kubernetes.io/arch": rest.partition("/")[0], **labels}


def _names(network: bool, nameservers: list[str]) -> dict[str, Any]:
    """Return the DNS settings. Without network, look-ups fail at once instead of timing out."""
    if network and not nameservers:
        return {"dnsPolicy": "ClusterFirst"}
    servers = nameservers if network else ["127.0.0.1"]
    return {"dnsPolicy": "None", "dnsConfig": {"nameservers": servers}}
