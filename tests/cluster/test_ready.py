"""What plan says of a real cluster before anything is made there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.accounts import RUNNER, Rule, account, forget
from tests.cluster.installed_chart import prepared
from tests.cluster.planning import ACT, GRADE, asked, refusal, refused_run, there
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


def test_a_bare_namespace_is_ready_with_a_notice_and_nothing_is_made(cluster: Cluster, namespace: str) -> None:
    [notice] = asked(cluster.kubeconfig, namespace).notices
    assert f"namespace '{namespace}' has no ConfigMap swe-argo-sandbox: nothing confines sandboxes there" in notice
    assert "helm install" in notice
    assert cluster.kubectl("get", "pods", "-n", namespace, "-o", "name") == ""


def test_a_missing_namespace_is_named_with_the_way_out(cluster: Cluster) -> None:
    assert refusal(cluster.kubeconfig, "evals") == (
        "sandbox.kubernetes.namespace: there is no namespace 'evals' in testing: kubectl create namespace evals, "
        "or name another with --namespace"
    )


def test_credentials_that_the_cluster_does_not_know_are_told(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    kubeconfig = account(cluster, namespace, tmp_path, RUNNER)
    text = json.loads(kubeconfig.read_text())
    text["users"][0]["user"]["token"] = "nobody"
    kubeconfig.write_text(json.dumps(text))
    assert "does not accept the credentials" in refusal(kubeconfig, namespace)
    text["users"][0]["user"] = {}
    kubeconfig.write_text(json.dumps(text))
    assert "does not accept the credentials" in refusal(kubeconfig, namespace)


def test_a_certificate_of_another_authority_is_told(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    config = json.loads(cluster.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    other = tmp_path / "other.conf"
    other.write_text(json.dumps(config))
    assert "certificate verify failed" in refusal(other, namespace)


@pytest.mark.parametrize(
    ("without", "told"),
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
def test_every_missing_right_is_named(
    cluster: Cluster, namespace: str, tmp_path: Path, without: Rule, told: str
) -> None:
    kubeconfig = account(cluster, namespace, tmp_path, [rule for rule in RUNNER if rule != without])
    said = refusal(kubeconfig, namespace)
    name = json.loads(kubeconfig.read_text())["users"][0]["name"]
    assert said.startswith(f"sandbox.kubernetes.namespace: system:serviceaccount:{namespace}:{name} {told}")
    assert "the chart's Role swe-argo-runner" in said


def test_an_account_with_no_more_than_needed_is_enough(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    kubeconfig = account(cluster, namespace, tmp_path, [rule for rule in RUNNER if rule[1] != "events"])
    notices = asked(kubeconfig, namespace).notices
    assert [notice[:22] for notice in notices] == [
        "no right to list event",
        f"namespace '{namespace}"[:22],
        "no right to list nodes",
    ]


def test_a_node_selector_that_no_node_has_is_refused_or_a_notice_where_nodes_cannot_be_seen(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    mars = ["planet=mars"]
    assert refusal(cluster.kubeconfig, namespace, kubernetes={"node_selector": mars}) == (
        "sandbox.kubernetes.node_selector: no node has the label planet=mars; none has a label planet"
    )
    blind = account(cluster, namespace, tmp_path, RUNNER)
    assert "planet=mars" in asked(blind, namespace, kubernetes={"node_selector": mars}).notices[-1]


def test_a_cluster_that_may_bring_nodes_gives_a_notice(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    # Who sees nodes but not kube-system cannot tell whether there is an autoscaler.
    sees = account(cluster, namespace, tmp_path, RUNNER, everywhere=NODES)
    assert "a cluster autoscaler, if there is one, may bring" in asked(sees, namespace, cpus=4000).notices[-1]
    with there(cluster, "kube-system", "ConfigMap", "cluster-autoscaler-status"):
        told = asked(cluster.kubeconfig, namespace, cpus=4000).notices[-1]
    assert told.startswith("sandbox.cpus: a sandbox asks for 4000 cpu")
    assert told.endswith("; the cluster autoscaler may bring such a node")


def test_a_wish_larger_than_any_node_is_refused_naming_the_largest(cluster: Cluster, namespace: str) -> None:
    [node] = cluster.kubectl("get", "nodes", "-o", "name").split()
    said = refusal(cluster.kubeconfig, namespace, memory_mb=10 << 20)
    assert said.startswith("sandbox.memory_mb: a sandbox asks for 10240Gi memory, and the largest node")
    assert node.removeprefix("node/") in said
    assert refusal(cluster.kubeconfig, namespace, cpus=4000).startswith("sandbox.cpus: a sandbox asks for 4000 cpu")


def test_a_selector_that_is_none_is_refused(cluster: Cluster, namespace: str) -> None:
    assert "'role' is not key=value" in refusal(cluster.kubeconfig, namespace, kubernetes={"node_selector": ["role"]})


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ("resources: {limits: {cpu: much}}", "resources.limits.cpu: "),
        ("nodeselector: {}", "nodeselector: "),
        ("[", "while parsing"),
    ],
)
def test_settings_that_make_no_sense_are_told_by_their_path(
    cluster: Cluster, namespace: str, document: str, told: str
) -> None:
    with there(cluster, namespace, "ConfigMap", "swe-argo-sandbox", data={"sandbox.yaml": document}):
        said = refusal(cluster.kubeconfig, namespace)
    assert "ConfigMap swe-argo-sandbox" in said
    assert told in said


def test_what_the_settings_name_must_be_there(cluster: Cluster, namespace: str) -> None:
    for document, told in (
        ("serviceAccountName: nobody", 'serviceaccount "nobody" not found'),
        ("priorityClassName: urgent", "no PriorityClass with name urgent"),
        ("runtimeClassName: gvisor", 'RuntimeClass "gvisor" not found'),
    ):
        with there(cluster, namespace, "ConfigMap", "swe-argo-sandbox", data={"sandbox.yaml": document}):
            assert told in refusal(cluster.kubeconfig, namespace)


def test_network_for_tests_that_the_namespace_does_not_give_is_refused(cluster: Cluster, namespace: str) -> None:
    with there(cluster, namespace, "ConfigMap", "swe-argo-sandbox", data={"sandbox.yaml": "gradingNetwork: false"}):
        said = refusal(cluster.kubeconfig, namespace)
        assert said.startswith("grading.network: ")
        assert "--no-grading-network" in said
        assert asked(cluster.kubeconfig, namespace, replace(GRADE, grading_network=False)).notices == []


def test_an_agent_that_acts_needs_a_policy_that_keeps_it_in(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    said = refusal(cluster.kubeconfig, namespace, ACT)
    assert said.startswith(f"sandbox.allow_host: no NetworkPolicy of namespace '{namespace}'")
    assert "--allow-host" in said
    assert (
        "they reach what any pod there reaches"
        in asked(cluster.kubeconfig, namespace, ACT, allow_host=True).notices[-1]
    )
    blind = account(cluster, namespace, tmp_path, RUNNER)
    assert refusal(blind, namespace, ACT).startswith("sandbox.allow_host: ")
    with there(cluster, namespace, "NetworkPolicy", "shut", "networking.k8s.io/v1", spec=SHUT):
        assert len(asked(cluster.kubeconfig, namespace, ACT).notices) == 1
        said = refusal(cluster.kubeconfig, namespace, ACT, solve_network=True)
    assert said.startswith("sandbox.solve_network: ")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--namespace", "evals"], "sandbox.kubernetes.namespace: there is no namespace 'evals'"),
        (["--node-selector", "planet=mars"], "no node has the label planet=mars"),
        (["--cpus", "4000"], "sandbox.cpus: a sandbox asks for 4000 cpu"),
        (["--memory-mb", "10485760"], "sandbox.memory_mb: a sandbox asks for 10240Gi memory"),
    ],
)
def test_a_refused_run_writes_one_line_and_nothing_else(
    cluster: Cluster, namespace: str, tmp_path: Path, words: list[str], told: str
) -> None:
    assert told in refused_run(cluster, namespace, tmp_path, *words)


def test_a_run_without_rights_writes_one_line_and_nothing_else(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    kubeconfig = account(cluster, namespace, tmp_path, [])
    told = refused_run(cluster, namespace, tmp_path, kubeconfig=kubeconfig)
    assert "may not create, get, list, watch, delete pods; get, create pods/exec" in told


def test_the_charts_account_in_the_charts_namespace_is_ready(cluster: Cluster, tmp_path: Path) -> None:
    with prepared(cluster, tmp_path) as installed:
        [notice] = asked(installed.kubeconfig, installed.namespace, ACT).notices
        assert notice.startswith("no right to list nodes: whether one takes a sandbox (10m cpu, 16Mi memory")
        assert asked(cluster.kubeconfig, installed.namespace, ACT).notices == []
