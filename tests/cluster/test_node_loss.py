"""A node that falls silent and is deleted, as a reclaimed spot instance is: what the control plane says of its pods.

The node is an object that no kubelet serves; scheduler, node controller and garbage collector are the cluster's own.
What the kubelet would say while it lived, the test says.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.sandbox_spec import KubernetesSpec, SandboxSpec
from swe_argo.steps.errors import InfraError
from swe_argo.steps.kube.client import RetryPolicy
from swe_argo.steps.sandbox.kubernetes.backend import KubernetesBackend
from swe_argo.steps.sandbox.kubernetes.namespace import NamespaceSettings
from swe_argo.steps.sandbox.kubernetes.pod import KubernetesSandbox
from swe_argo.steps.sandbox.untrusted import as_untrusted
from tests.cluster.installed_chart import PATIENCE_S, settles
from tests.cluster.lab import SMALL, KubernetesLab, keep_pod_object
from tests.cluster.real_cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

NAMED = "kubernetes.io/hostname"
ROOM = {"cpu": "4", "memory": "4Gi", "ephemeral-storage": "10Gi", "pods": "10"}


@pytest.fixture
def node(cluster: Cluster) -> Iterator[str]:
    """A node that says that it is ready, and again for each sandbox. Only pods that tolerate it go there."""
    name = f"ghost-{secrets.token_hex(3)}"
    labels = {NAMED: name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    meta = {"name": name, "labels": labels}
    taint = {"key": "ghost", "value": name, "effect": "NoSchedule"}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"taints": [taint]}}
    cluster.kubectl("create", "-f", "-", input=json.dumps(body))
    try:
        nowhere = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
        }
        patched(cluster, "node", name, {"capacity": ROOM, "allocatable": ROOM, "conditions": [ready()], **nowhere})
        yield name
    finally:
        cluster.kubectl("delete", "node", name, "--ignore-not-found")


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ready() -> dict[str, str]:
    """A node's sign of life."""
    return {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now()}


def patched(cluster: Cluster, kind: str, name: str, status: dict[str, Any], *place: str) -> None:
    """Set the status of an object, as a kubelet does."""
    words = ("patch", kind, name, *place, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    cluster.kubectl(*words)


def condition(pod: dict[str, Any], kind: str) -> str:
    return next((str(entry["status"]) for entry in pod["status"].get("conditions", []) if entry["type"] == kind), "")


def scheduled(pod: dict[str, Any]) -> bool:
    return condition(pod, "PodScheduled") == "True"


def create_on(lab: KubernetesLab, node: str) -> KubernetesSandbox:
    """A sandbox there, its container running as far as anybody knows."""
    settings = {**SMALL, "nodeSelector": {NAMED: node}, "tolerations": [{"key": "ghost", "operator": "Exists"}]}
    backend = KubernetesBackend(
        lab.reached,
        SandboxSpec(backend="kubernetes", kubernetes=KubernetesSpec(namespace=lab.namespace)),
        NamespaceSettings.model_validate(settings),
        RetryPolicy(total_s=3, first_s=0.05, longest_s=1),
    )
    request = lab.request(deadline_s=600, network=True)  # nobody there could prove that it has none
    with ThreadPoolExecutor(1) as pool:
        making = pool.submit(backend.create, request)

        def is_taken() -> bool:
            patched(lab.cluster, "node", node, {"conditions": [ready()]})  # else it falls silent meanwhile
            return request.name in lab.pods() and scheduled(lab.pod(request.name))

        assert settles(is_taken)
        runs = {"name": "sandbox", "ready": True, "restartCount": 0, "image": lab.image, "imageID": ""}
        runs |= {"containerID": "containerd://ghost", "state": {"running": {"startedAt": now()}}}
        conditions = [entry for entry in lab.pod(request.name)["status"]["conditions"] if entry["type"] != "Ready"]
        running = {"type": "Ready", "status": "True", "lastTransitionTime": now()}
        status = {"phase": "Running", "containerStatuses": [runs], "conditions": [*conditions, running]}
        patched(lab.cluster, "pod", request.name, status, "-n", lab.namespace)
        box = making.result(timeout=PATIENCE_S)
    lab.sandboxes.append((backend, box))
    return box


def test_deleted_node_is_a_node_loss(cluster: Cluster, lab: KubernetesLab, node: str) -> None:
    box, kept_box = create_on(lab, node), create_on(lab, node)
    with pytest.raises(InfraError, match=r"error sending request|error dialing backend") as caught:
        as_untrusted(box).exec("true", timeout_s=10)
    assert (type(caught.value), caught.value.failure_class) == (InfraError, FailureClass.EXEC)
    with keep_pod_object(lab, kept_box):
        assert settles(lambda: condition(lab.pod(box.transport.name), "Ready") != "True")
        cluster.kubectl("delete", "node", node)
        detail = lost(box, f"is unreachable: node {node} does not answer")
        assert "Ready False" in detail
        assert "NodeNotReady: Node is not ready" in detail

        assert settles(lambda: box.transport.name not in lab.pods())
        assert "NodeNotReady: Node is not ready" in lost(box, "lost its node: Node is not ready")
        # The last look at a pod, whose object somebody else keeps here.
        assert "DeletionByPodGC" in lost(kept_box, "lost its node: PodGC: node no longer exists")


def lost(box: KubernetesSandbox, words: str) -> str:
    """How a command fails there, of our own or once other code ran; what Kubernetes said."""
    for machine in (as_untrusted(box), box):
        with pytest.raises(InfraError, match=words) as caught:
            machine.exec("true", timeout_s=10)
        assert (type(caught.value), caught.value.failure_class) == (InfraError, FailureClass.NODE_LOST)
    return caught.value.detail
