"""The cluster, what makes its nodes, and the charts on it mean the same nodes."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.eks.files import VALUES, group, values

NODE_TEMPLATE = "k8s.io/cluster-autoscaler/node-template"


def test_sandboxes_fit_node_group(cluster: dict[str, Any], chart: dict[str, Any]) -> None:
    nodes = group(cluster, "cpu-sandbox")
    assert nodes["labels"] == chart["sandbox"]["nodeSelector"]
    tolerated = [{**taint, "operator": "Equal"} for taint in nodes["taints"]]
    assert tolerated == chart["sandbox"]["tolerations"] == chart["steps"]["tolerations"]


def test_karpenter_matches_node_group(cluster: dict[str, Any], pool: dict[str, Any]) -> None:
    nodes, template = group(cluster, "cpu-sandbox"), pool["spec"]["template"]
    assert template["metadata"]["labels"] == nodes["labels"]
    assert template["spec"]["taints"] == nodes["taints"]
    (types,) = (
        item["values"] for item in template["spec"]["requirements"] if item["key"] == "node.kubernetes.io/instance-type"
    )
    assert nodes["instanceType"] in types
    assert int(pool["spec"]["limits"]["cpu"]) == 16 * nodes["maxSize"]


def test_node_group_tags_describe_nodes(cluster: dict[str, Any]) -> None:
    nodes = group(cluster, "cpu-sandbox")
    tags = nodes["tags"]
    assert nodes["propagateASGTags"] is True
    assert {key: tags[f"{NODE_TEMPLATE}/label/{key}"] for key in nodes["labels"]} == nodes["labels"]
    for taint in nodes["taints"]:
        assert tags[f"{NODE_TEMPLATE}/taint/{taint['key']}"] == f"{taint['value']}:{taint['effect']}"
    disk = re.fullmatch(r"(\d+)Gi", tags[f"{NODE_TEMPLATE}/resources/ephemeral-storage"])
    assert disk
    assert 0 < int(disk[1]) < nodes["volumeSize"]


def test_autoscaler_tags_one_group(cluster: dict[str, Any]) -> None:
    expected = {"k8s.io/cluster-autoscaler/enabled": "true", f"k8s.io/cluster-autoscaler/{VALUES['CLUSTER']}": "owned"}
    assert expected.items() <= group(cluster, "cpu-sandbox")["tags"].items()
    assert "tags" not in group(cluster, "system")


def test_node_group_sizes_are_bounded(cluster: dict[str, Any]) -> None:
    sizes = {
        nodes["name"]: (nodes["instanceType"], nodes["minSize"], nodes["desiredCapacity"], nodes["maxSize"])
        for nodes in cluster["managedNodeGroups"]
    }
    assert sizes == {"system": ("m5.xlarge", 1, 1, 1), "cpu-sandbox": ("m5.4xlarge", 0, 0, 20)}


def test_autoscaling_keeps_running_units(cluster: dict[str, Any], pool: dict[str, Any]) -> None:
    assert "AZRebalance" in group(cluster, "cpu-sandbox")["asgSuspendProcesses"]
    disruption = pool["spec"]["disruption"]
    assert (disruption["consolidationPolicy"], disruption["consolidateAfter"]) == ("WhenEmpty", "5m")
    stopped = [reason for budget in disruption["budgets"] if budget["nodes"] == "0" for reason in budget["reasons"]]
    assert set(stopped) == {"Drifted", "Underutilized"}
    flags = values("autoscaler-values.yaml")["extraArgs"]
    assert (flags["expander"], flags["scan-interval"]) == ("least-waste", "10s")


def test_drained_pods_get_enough_time(pool: dict[str, Any]) -> None:
    longest_s = 7200  # a sandbox of solve
    spec = pool["spec"]["template"]["spec"]
    assert int(spec["terminationGracePeriod"].rstrip("h")) * 3600 >= longest_s
    assert int(values("autoscaler-values.yaml")["extraArgs"]["max-graceful-termination-sec"]) >= longest_s
    assert int(spec["expireAfter"].rstrip("h")) >= 48  # a run ends within two days


def test_autoscaler_sees_low_priority(chart: dict[str, Any]) -> None:
    cutoff = int(values("autoscaler-values.yaml")["extraArgs"]["expendable-pods-priority-cutoff"])
    assert chart["priorityClass"]["value"] >= cutoff


def test_pods_cannot_reach_node_role(cluster: dict[str, Any], node_class: dict[str, Any]) -> None:
    for nodes in cluster["managedNodeGroups"]:
        assert (nodes["disablePodIMDS"], nodes["disableIMDSv1"]) == (True, True)
        assert nodes["privateNetworking"] is True
    options = node_class["spec"]["metadataOptions"]
    assert options == {"httpTokens": "required", "httpPutResponseHopLimit": 1}


def test_network_policies_are_enforced(cluster: dict[str, Any]) -> None:
    addons = {addon["name"]: addon for addon in cluster["addons"]}
    assert set(addons) == {"vpc-cni", "coredns", "kube-proxy", "eks-pod-identity-agent", "metrics-server"}
    assert yaml.safe_load(addons["vpc-cni"]["configurationValues"]) == {"enableNetworkPolicy": "true"}


def test_sandboxes_cannot_reach_vpc(cluster: dict[str, Any], chart: dict[str, Any]) -> None:
    assert cluster["vpc"]["cidr"] in chart["grading"]["denyCIDRs"]


def test_control_pods_use_system_nodes(cluster: dict[str, Any]) -> None:
    ours = values("chart-values.yaml")
    assert ours["control"]["nodeSelector"] == group(cluster, "system")["labels"]
    assert ours["steps"]["nodeSelector"] == group(cluster, "cpu-sandbox")["labels"]
    assert "taints" not in group(cluster, "system")
