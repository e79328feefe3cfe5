"""What plan says of a real cluster before anything is made there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.accounts import RUNNER, Rule, account, forget
from tests.cluster.installed_chart import prepared
from tests.cluster.planning import ACT, GRADE, check_readiness, refusal, refused_run, temporary_object
from tests.cluster.real_cluster import Cluster

pytestmark = pytest.mark.cluster

NODES: list[Rule] = [("list", "nodes", "")]
SHUT = {
    "podSelector": {"matchExpressions": [{"key": "swe-argo/role", "operator": "Exists"}]},
    "policyTypes": ["Egress"],
}


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    """A bare namespace, without the chart."""
    with cluster.namespace("ready") as name:
        yield name
        forget(cluster, name)


def test_bare_namespace_gives_a_notice(cluster: Cluster, namespace: str) -> None:
    [notice] = check_readiness(cluster.kubeconfig, namespace).notices
    assert f"namespace '{namespace}' has no ConfigMap swe-argo-sandbox: nothing confines sandboxes there" in notice
    assert "helm install" in notice
    assert cluster.kubectl("get", "pods", "-n", namespace, "-o", "name") == ""


def test_missing_namespace_names_command(cluster: Cluster) -> None:
    assert refusal(cluster.kubeconfig, "evals") == (
        "sandbox.kubernetes.namespace: namespace 'evals' does not exist in testing: kubectl create namespace evals, "
        "or name another with --namespace"
    )


def test_unknown_user_is_reported(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    kubeconfig = account(cluster, namespace, tmp_path, RUNNER)
    text = json.loads(kubeconfig.read_text())
    text["users"][0]["user"]["token"] = "nobody"
    kubeconfig.write_text(json.dumps(text))
    assert "rejected the kubeconfig's credentials" in refusal(kubeconfig, namespace)
    text["users"][0]["user"] = {}
    kubeconfig.write_text(json.dumps(text))
    assert "rejected the kubeconfig's credentials" in refusal(kubeconfig, namespace)


def test_unknown_authority_is_reported(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    config = json.loads(cluster.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    other = tmp_path / "other.conf"
    other.write_text(json.dumps(config))
    assert "certificate verify failed" in refusal(other, namespace)


@pytest.mark.parametrize(
    ("without", "expected"),
    [
        (("create,get,list,watch,delete", "pods", ""), "may not create, get, list, watch, delete pods in namespace"),
        (("get,create", "pods/exec", ""), "may not get, create pods/exec in namespace"),
        (("get", "configmaps", ""), "may not get configmaps swe-argo-sandbox in namespace"),
        (
            ("create,get,list,update,delete", "leases", "coordination.k8s.io"),
            "may not create, get, update, delete leas",
        ),
    ],
)
def test_missing_right_is_named(cluster: Cluster, namespace: str, tmp_path: Path, without: Rule, expected: str) -> None:
    kubeconfig = account(cluster, namespace, tmp_path, [rule for rule in RUNNER if rule != without])
    message = refusal(kubeconfig, namespace)
    name = json.loads(kubeconfig.read_text())["users"][0]["name"]
    assert message.startswith(f"sandbox.kubernetes.namespace: system:serviceaccount:{namespace}:{name} {expected}")
    assert "the chart's Role swe-argo-runner" in message


def test_minimal_rights_are_enough(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    kubeconfig = account(cluster, namespace, tmp_path, [rule for rule in RUNNER if rule[1] != "events"])
    notices = check_readiness(kubeconfig, namespace).notices
    assert [notice[:22] for notice in notices] == [
        "no right to list event",
        f"namespace '{namespace}"[:22],
        "no right to list nodes",
    ]


def test_unmatched_selector_is_refused(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    mars = ["planet=mars"]
    assert refusal(cluster.kubeconfig, namespace, kubernetes={"node_selector": mars}) == (
        "sandbox.kubernetes.node_selector: no node has the label planet=mars; none has a label planet"
    )
    blind = account(cluster, namespace, tmp_path, RUNNER)
    assert "planet=mars" in check_readiness(blind, namespace, kubernetes={"node_selector": mars}).notices[-1]


def test_autoscaler_gives_a_notice(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    # Who sees nodes but not kube-system cannot tell whether there is an autoscaler.
    sees = account(cluster, namespace, tmp_path, RUNNER, everywhere=NODES)
    assert "a cluster autoscaler, if installed, may add" in check_readiness(sees, namespace, cpus=4000).notices[-1]
    with temporary_object(cluster, "kube-system", "ConfigMap", "cluster-autoscaler-status"):
        message = check_readiness(cluster.kubeconfig, namespace, cpus=4000).notices[-1]
    assert message.startswith("sandbox.cpus: a sandbox requests 4000 cpu")
    assert message.endswith("; the cluster autoscaler may add such a node")


def test_large_request_names_the_node(cluster: Cluster, namespace: str) -> None:
    [node] = cluster.kubectl("get", "nodes", "-o", "name").split()
    message = refusal(cluster.kubeconfig, namespace, memory_mb=10 << 20)
    assert message.startswith("sandbox.memory_mb: a sandbox requests 10240Gi memory, but the largest node")
    assert node.removeprefix("node/") in message
    assert refusal(cluster.kubeconfig, namespace, cpus=4000).startswith("sandbox.cpus: a sandbox requests 4000 cpu")


def test_invalid_selector_is_refused(cluster: Cluster, namespace: str) -> None:
    assert "'role' is not key=value" in refusal(cluster.kubeconfig, namespace, kubernetes={"node_selector": ["role"]})


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("resources: {limits: {cpu: much}}", "resources.limits.cpu: "),
        ("nodeselector: {}", "nodeselector: "),
        ("[", "while parsing"),
    ],
)
def test_invalid_settings_have_a_path(cluster: Cluster, namespace: str, document: str, expected: str) -> None:
    with temporary_object(cluster, namespace, "ConfigMap", "swe-argo-sandbox", data={"sandbox.yaml": document}):
        message = refusal(cluster.kubeconfig, namespace)
    assert "ConfigMap swe-argo-sandbox" in message
    assert expected in message


def test_settings_objects_must_exist(cluster: Cluster, namespace: str) -> None:
    for document, expected in (
        ("serviceAccountName: nobody", 'serviceaccount "nobody" not found'),
        ("priorityClassName: urgent", "no PriorityClass with name urgent"),
        ("runtimeClassName: gvisor", 'RuntimeClass "gvisor" not found'),
    ):
        with temporary_object(cluster, namespace, "ConfigMap", "swe-argo-sandbox", data={"sandbox.yaml": document}):
            assert expected in refusal(cluster.kubeconfig, namespace)


def test_forbidden_network_is_refused(cluster: Cluster, namespace: str) -> None:
    with temporary_object(
        cluster, namespace, "ConfigMap", "swe-argo-sandbox", data={"sandbox.yaml": "gradingNetwork: false"}
    ):
        message = refusal(cluster.kubeconfig, namespace)
        assert message.startswith("grading.network: ")
        assert "--no-grading-network" in message
        assert check_readiness(cluster.kubeconfig, namespace, replace(GRADE, grading_network=False)).notices == []


def test_agent_needs_a_confining_policy(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    message = refusal(cluster.kubeconfig, namespace, ACT)
    assert message.startswith(f"sandbox.allow_host: no NetworkPolicy of namespace '{namespace}'")
    assert "--allow-host" in message
    assert (
        "they have the network access of any pod there"
        in check_readiness(cluster.kubeconfig, namespace, ACT, allow_host=True).notices[-1]
    )
    blind = account(cluster, namespace, tmp_path, RUNNER)
    assert refusal(blind, namespace, ACT).startswith("sandbox.allow_host: ")
    with temporary_object(cluster, namespace, "NetworkPolicy", "shut", "networking.k8s.io/v1", spec=SHUT):
        assert len(check_readiness(cluster.kubeconfig, namespace, ACT).notices) == 1
        message = refusal(cluster.kubeconfig, namespace, ACT, solve_network=True)
    assert message.startswith("sandbox.solve_network: ")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--namespace", "evals"], "sandbox.kubernetes.namespace: namespace 'evals' does not exist"),
        (["--node-selector", "planet=mars"], "no node has the label planet=mars"),
        (["--cpus", "4000"], "sandbox.cpus: a sandbox requests 4000 cpu"),
        (["--memory-mb", "10485760"], "sandbox.memory_mb: a sandbox requests 10240Gi memory"),
    ],
)
def test_refused_run_is_one_line(
    cluster: Cluster, namespace: str, tmp_path: Path, words: list[str], expected: str
) -> None:
    assert expected in refused_run(cluster, namespace, tmp_path, *words)


def test_run_without_rights_is_one_line(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    kubeconfig = account(cluster, namespace, tmp_path, [])
    message = refused_run(cluster, namespace, tmp_path, kubeconfig=kubeconfig)
    assert "may not create, get, list, watch, delete pods; get, create pods/exec" in message


def test_chart_account_is_ready(cluster: Cluster, tmp_path: Path) -> None:
    with prepared(cluster, tmp_path) as installed:
        [notice] = check_readiness(installed.kubeconfig, installed.namespace, ACT).notices
        assert notice.startswith(
            "no right to list nodes: cannot check whether one fits a sandbox (10m cpu, 16Mi memory"
        )
        assert check_readiness(cluster.kubeconfig, installed.namespace, ACT).notices == []
