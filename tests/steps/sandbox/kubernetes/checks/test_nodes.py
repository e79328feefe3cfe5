"""Which pods some node could take."""

from __future__ import annotations

from typing import Any

import pytest

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.kubernetes.checks.nodes import check_fit

AMD = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
ARM = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64"}


def node(name: str, labels: dict[str, str], cpu: str = "4", memory: str = "16Gi", **spec: Any) -> dict[str, Any]:
    room = {"cpu": cpu, "memory": memory, "ephemeral-storage": "50Gi", "pods": "110"}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": room}}


def pod(
    selector: dict[str, str], requests: dict[str, str], limits: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    container = {"resources": {"requests": requests, "limits": limits or {}}}
    return {"metadata": {"name": "sb-x"}, "spec": {"nodeSelector": selector, "containers": [container], **spec}}


def refusal(nodes: list[dict[str, Any]], pod_manifest: dict[str, Any], **chosen_spec: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        check_fit(nodes, pod_manifest, SandboxSpec(backend="kubernetes", **chosen_spec))
    return refused.value.reason


def fits(nodes: list[dict[str, Any]], pod_manifest: dict[str, Any], **chosen_spec: Any) -> None:
    check_fit(nodes, pod_manifest, SandboxSpec(backend="kubernetes", **chosen_spec))


SMALL = {"cpu": "500m", "memory": "1Gi"}


def test_pod_as_large_as_a_node_fits() -> None:
    fits([node("a", AMD)], pod(AMD, {"cpu": "4", "memory": "16Gi"}))


def test_unknown_selector_lists_labels() -> None:
    nodes = [node("a", {**AMD, "role": "web"}), node("b", {**AMD, "role": "db"})]
    reason = refusal(
        nodes, pod({**AMD, "role": "cpu-sandbox"}, SMALL), kubernetes={"node_selector": ["role=cpu-sandbox"]}
    )
    assert reason == "sandbox.kubernetes.node_selector: no node has the label role=cpu-sandbox; role is db, web here"


def test_namespace_selector_is_named() -> None:
    reason = refusal([node("a", AMD)], pod({**AMD, "role": "x"}, SMALL))
    assert reason == "swe-argo-sandbox: nodeSelector: no node has the label role=x; none has a label role"


def test_split_labels_are_refused() -> None:
    nodes = [node("a", {**AMD, "disk": "ssd"}), node("b", {**AMD, "role": "x"})]
    assert "no node has all the labels" in refusal(nodes, pod({**AMD, "role": "x", "disk": "ssd"}, SMALL))


def test_missing_platform_is_named() -> None:
    reason = refusal([node("a", ARM)], pod(AMD, SMALL), kubernetes={"node_selector": ["role=x"]})
    assert reason == (
        "sandbox.platform: no node has the label kubernetes.io/arch=amd64; kubernetes.io/arch is arm64 here"
    )


def test_large_request_names_the_node() -> None:
    nodes = [node("a", AMD), node("b", AMD, cpu="8"), node("huge", ARM, cpu="128")]
    reason = refusal(nodes, pod(AMD, {"cpu": "9"}))
    assert reason == (
        "swe-argo-sandbox: resources.requests.cpu: a sandbox requests 9 cpu, but the largest node that it may run on, "
        "b, has 8"
    )


def test_requests_must_fit_one_node() -> None:
    nodes = [node("a", AMD, cpu="8", memory="2Gi"), node("b", AMD, cpu="2", memory="64Gi")]
    assert "no node has everything that a sandbox requests: 8 cpu, 64Gi memory" in refusal(
        nodes, pod(AMD, {"cpu": "8", "memory": "64Gi"})
    )


def test_explicit_limit_must_fit_a_node() -> None:
    pod_manifest = pod(AMD, SMALL, {"cpu": "64", "memory": "64Gi"})
    fits([node("a", AMD)], pod_manifest)
    assert refusal([node("a", AMD)], pod_manifest, cpus=64).startswith("sandbox.cpus: a sandbox requests 64 cpu")
    assert refusal([node("a", AMD)], pod_manifest, memory_mb=64 << 10).startswith(
        "sandbox.memory_mb: a sandbox requests"
    )


def test_runtime_class_overhead_counts() -> None:
    fits([node("a", AMD)], pod(AMD, {"cpu": "4"}))
    assert "requests 4100m cpu" in refusal([node("a", AMD)], pod(AMD, {"cpu": "4"}, overhead={"cpu": "100m"}))


TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}


def test_untolerated_nodes_do_not_count() -> None:
    reason = refusal([node("a", AMD, taints=[TAINT])], pod(AMD, SMALL))
    assert "do not tolerate the taint dedicated=gpu:NoSchedule of the 1 nodes" in reason


@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists"},
        {"key": "dedicated", "operator": "Exists"},
        {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
        {"key": "dedicated", "operator": "Equal", "value": "gpu"},
    ],
)
def test_tolerated_taints_do_not_matter(toleration: dict[str, str]) -> None:
    fits([node("a", AMD, taints=[TAINT])], pod(AMD, SMALL, tolerations=[toleration]))


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "dedicated", "value": "other"},
        {"key": "dedicated", "operator": "Exists", "effect": "NoExecute"},
        {"key": "other", "operator": "Exists"},
    ],
)
def test_other_tolerations_do_not_help(toleration: dict[str, str]) -> None:
    refusal([node("a", AMD, taints=[TAINT])], pod(AMD, SMALL, tolerations=[toleration]))


@pytest.mark.parametrize(
    "taint",
    [
        {"key": "dedicated", "effect": "PreferNoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
    ],
)
def test_cordoned_node_still_counts(taint: dict[str, str]) -> None:
    fits([node("a", AMD, taints=[taint])], pod(AMD, SMALL))


def test_empty_cluster_is_refused() -> None:
    assert "the cluster has no nodes" in refusal([], pod(AMD, SMALL))
