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


def refusal(nodes: list[dict[str, Any]], wanted: dict[str, Any], **chosen_spec: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        check_fit(nodes, wanted, SandboxSpec(backend="kubernetes", **chosen_spec))
    return refused.value.reason


def fits(nodes: list[dict[str, Any]], wanted: dict[str, Any], **chosen_spec: Any) -> None:
    check_fit(nodes, wanted, SandboxSpec(backend="kubernetes", **chosen_spec))


SMALL = {"cpu": "500m", "memory": "1Gi"}


def test_a_pod_that_is_exactly_as_large_as_a_node_fits() -> None:
    fits([node("a", AMD)], pod(AMD, {"cpu": "4", "memory": "16Gi"}))


def test_a_node_selector_that_no_node_has_is_refused_with_what_nodes_have_instead() -> None:
    nodes = [node("a", {**AMD, "role": "web"}), node("b", {**AMD, "role": "db"})]
    told = refusal(
        nodes, pod({**AMD, "role": "cpu-sandbox"}, SMALL), kubernetes={"node_selector": ["role=cpu-sandbox"]}
    )
    assert told == "sandbox.kubernetes.node_selector: no node has the label role=cpu-sandbox; role is db, web here"


def test_a_selector_of_the_namespace_is_not_blamed_on_a_flag() -> None:
    told = refusal([node("a", AMD)], pod({**AMD, "role": "x"}, SMALL))
    assert told == "swe-argo-sandbox: nodeSelector: no node has the label role=x; none has a label role"


def test_labels_that_are_there_but_on_no_one_node_are_refused() -> None:
    nodes = [node("a", {**AMD, "disk": "ssd"}), node("b", {**AMD, "role": "x"})]
    assert "no node has all the labels" in refusal(nodes, pod({**AMD, "role": "x", "disk": "ssd"}, SMALL))


def test_a_platform_that_no_node_has_is_refused_under_its_own_name() -> None:
    told = refusal([node("a", ARM)], pod(AMD, SMALL), kubernetes={"node_selector": ["role=x"]})
    assert told == (
        "sandbox.platform: no node has the label kubernetes.io/arch=amd64; kubernetes.io/arch is arm64 here"
    )


def test_a_request_larger_than_every_matching_node_is_refused_naming_the_largest() -> None:
    nodes = [node("a", AMD), node("b", AMD, cpu="8"), node("huge", ARM, cpu="128")]
    told = refusal(nodes, pod(AMD, {"cpu": "9"}))
    assert told == (
        "swe-argo-sandbox: resources.requests.cpu: a sandbox asks for 9 cpu, and the largest node that it may run on, "
        "b, has 8"
    )


def test_requests_that_no_one_node_can_hold_together_are_refused() -> None:
    nodes = [node("a", AMD, cpu="8", memory="2Gi"), node("b", AMD, cpu="2", memory="64Gi")]
    assert "no node has all that a sandbox asks for: 8 cpu, 64Gi memory" in refusal(
        nodes, pod(AMD, {"cpu": "8", "memory": "64Gi"})
    )


def test_a_wished_limit_above_every_node_is_refused_but_the_namespaces_own_is_not() -> None:
    wanted = pod(AMD, SMALL, {"cpu": "64", "memory": "64Gi"})
    fits([node("a", AMD)], wanted)
    assert refusal([node("a", AMD)], wanted, cpus=64).startswith("sandbox.cpus: a sandbox asks for 64 cpu")
    assert refusal([node("a", AMD)], wanted, memory_mb=64 << 10).startswith("sandbox.memory_mb: a sandbox asks for")


def test_what_the_runtime_class_adds_counts() -> None:
    fits([node("a", AMD)], pod(AMD, {"cpu": "4"}))
    assert "asks for 4100m cpu" in refusal([node("a", AMD)], pod(AMD, {"cpu": "4"}, overhead={"cpu": "100m"}))


TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}


def test_nodes_whose_taint_is_not_tolerated_do_not_count() -> None:
    told = refusal([node("a", AMD, taints=[TAINT])], pod(AMD, SMALL))
    assert "do not tolerate the taint dedicated=gpu:NoSchedule of the 1 nodes" in told


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
def test_a_node_that_is_cordoned_or_away_for_a_while_still_counts(taint: dict[str, str]) -> None:
    fits([node("a", AMD, taints=[taint])], pod(AMD, SMALL))


def test_a_cluster_without_nodes_says_so() -> None:
    assert "the cluster has no nodes" in refusal([], pod(AMD, SMALL))
