"""The cluster, what makes its nodes, and the charts on it mean the same nodes."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.eks.files import EKS, VALUES, group, values

NODE_TEMPLATE = "k8s.io/cluster-autoscaler/node-template"


def test_sandboxes_fit_the_labels_and_taints_of_their_node_group(
    cluster: dict[str, Any], chart: dict[str, Any]
) -> None:
    nodes = group(cluster, "cpu-sandbox")
    assert nodes["labels"] == chart["sandbox"]["nodeSelector"]
    tolerated = [{**each, "operator": "Equal"} for each in nodes["taints"]]
    assert tolerated == chart["sandbox"]["tolerations"] == chart["steps"]["tolerations"]


def test_karpenters_nodes_are_those_of_the_node_group(cluster: dict[str, Any], pool: dict[str, Any]) -> None:
    nodes, made = group(cluster, "cpu-sandbox"), pool["spec"]["template"]
    assert made["metadata"]["labels"] == nodes["labels"]
    assert made["spec"]["taints"] == nodes["taints"]
    (types,) = (
        each["values"] for each in made["spec"]["requirements"] if each["key"] == "node.kubernetes.io/instance-type"
    )
    assert nodes["instanceType"] in types
    assert int(pool["spec"]["limits"]["cpu"]) == 16 * nodes["maxSize"]


def test_from_zero_the_autoscaler_knows_labels_taints_and_disk_by_tags(cluster: dict[str, Any]) -> None:
    nodes = group(cluster, "cpu-sandbox")
    tags = nodes["tags"]
    assert nodes["propagateASGTags"] is True
    assert {key: tags[f"{NODE_TEMPLATE}/label/{key}"] for key in nodes["labels"]} == nodes["labels"]
    for taint in nodes["taints"]:
        assert tags[f"{NODE_TEMPLATE}/taint/{taint['key']}"] == f"{taint['value']}:{taint['effect']}"
    disk = re.fullmatch(r"(\d+)Gi", tags[f"{NODE_TEMPLATE}/resources/ephemeral-storage"])
    assert disk
    assert 0 < int(disk[1]) < nodes["volumeSize"]


def test_the_autoscaler_finds_the_sandboxes_node_group_and_no_other(cluster: dict[str, Any]) -> None:
    wanted = {"k8s.io/cluster-autoscaler/enabled": "true", f"k8s.io/cluster-autoscaler/{VALUES['CLUSTER']}": "owned"}
    assert wanted.items() <= group(cluster, "cpu-sandbox")["tags"].items()
    assert "tags" not in group(cluster, "system")


def test_there_is_one_system_node_and_none_to_twenty_for_sandboxes(cluster: dict[str, Any]) -> None:
    sizes = {
        each["name"]: (each["instanceType"], each["minSize"], each["desiredCapacity"], each["maxSize"])
        for each in cluster["managedNodeGroups"]
    }
    assert sizes == {"system": ("m5.xlarge", 1, 1, 1), "cpu-sandbox": ("m5.4xlarge", 0, 0, 20)}


def test_nothing_ends_a_running_unit_to_save_a_node(cluster: dict[str, Any], pool: dict[str, Any]) -> None:
    assert "AZRebalance" in group(cluster, "cpu-sandbox")["asgSuspendProcesses"]
    disruption = pool["spec"]["disruption"]
    assert (disruption["consolidationPolicy"], disruption["consolidateAfter"]) == ("WhenEmpty", "5m")
    stopped = [reason for each in disruption["budgets"] if each["nodes"] == "0" for reason in each["reasons"]]
    assert set(stopped) == {"Drifted", "Underutilized"}
    flags = values("autoscaler-values.yaml")["extraArgs"]
    assert (flags["expander"], flags["scan-interval"]) == ("least-waste", "10s")


def test_who_must_go_all_the_same_gets_the_time_of_the_longest_pod(pool: dict[str, Any]) -> None:
    longest_s = 7200  # a sandbox of solve
    spec = pool["spec"]["template"]["spec"]
    assert int(spec["terminationGracePeriod"].rstrip("h")) * 3600 >= longest_s
    assert int(values("autoscaler-values.yaml")["extraArgs"]["max-graceful-termination-sec"]) >= longest_s
    assert int(spec["expireAfter"].rstrip("h")) >= 48  # a run ends within two days


def test_nodes_are_made_for_pods_of_the_sandboxes_priority(chart: dict[str, Any]) -> None:
    cutoff = int(values("autoscaler-values.yaml")["extraArgs"]["expendable-pods-priority-cutoff"])
    assert chart["priorityClass"]["value"] >= cutoff


def test_no_pod_reaches_the_role_of_its_node(cluster: dict[str, Any], node_class: dict[str, Any]) -> None:
    for nodes in cluster["managedNodeGroups"]:
        assert (nodes["disablePodIMDS"], nodes["disableIMDSv1"]) == (True, True)
        assert nodes["privateNetworking"] is True
    options = node_class["spec"]["metadataOptions"]
    assert options == {"httpTokens": "required", "httpPutResponseHopLimit": 1}


def test_network_policies_are_enforced(cluster: dict[str, Any]) -> None:
    addons = {each["name"]: each for each in cluster["addons"]}
    assert set(addons) == {"vpc-cni", "coredns", "kube-proxy", "eks-pod-identity-agent", "metrics-server"}
    assert yaml.safe_load(addons["vpc-cni"]["configurationValues"]) == {"enableNetworkPolicy": "true"}


def test_sandboxes_are_kept_out_of_the_clusters_own_addresses(cluster: dict[str, Any], chart: dict[str, Any]) -> None:
    assert cluster["vpc"]["cidr"] in chart["grading"]["denyCIDRs"]


def test_control_pods_run_on_the_system_node_and_steps_beside_sandboxes(cluster: dict[str, Any]) -> None:
    ours = values("chart-values.yaml")
    assert ours["control"]["nodeSelector"] == group(cluster, "system")["labels"]
    assert ours["steps"]["nodeSelector"] == group(cluster, "cpu-sandbox")["labels"]
    assert "taints" not in group(cluster, "system")


def test_yaml_has_no_merge_keys_which_eksctl_takes_for_duplicates() -> None:
    assert "<<" not in (EKS / "cluster.yaml").read_text()
