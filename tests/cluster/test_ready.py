"""The plan step's checks of a real cluster: access, nodes, settings, quotas and policies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.kubernetes.checks.admission import check_cluster
from swe_argo.steps.sandbox.protocol import ReadinessResult, SandboxNeeds
from tests.cluster.accounts import RUNNER, Rule, account, forget, reached
from tests.cluster.installed_chart import prepared
from tests.cluster.real_cluster import Cluster
from tests.workflows.command import swe_argo, wait_for

pytestmark = pytest.mark.cluster

GRADE = SandboxNeeds(images=["localhost/x:1"], acts=False, solves=False, grading_network=True, timeout_s=1800)
ACT = replace(GRADE, acts=True, solves=True)
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


@contextmanager
def temporary_object(
    cluster: Cluster, namespace: str, kind: str, name: str, api: str = "v1", **body: Any
) -> Iterator[None]:
    """Such an object in the namespace."""
    whole = {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": namespace}, **body}
    cluster.kubectl("apply", "-f", "-", input=json.dumps(whole))
    try:
        yield
    finally:
        cluster.kubectl("delete", kind, name, "-n", namespace)


def check_readiness(kubeconfig: Path, namespace: str, needs: SandboxNeeds = GRADE, **spec: Any) -> ReadinessResult:
    return check_cluster(reached(kubeconfig, namespace), SandboxSpec(backend="kubernetes", **spec), needs)


def refusal(kubeconfig: Path, namespace: str, needs: SandboxNeeds = GRADE, **spec: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        check_readiness(kubeconfig, namespace, needs, **spec)
    assert "\n" not in refused.value.reason
    return refused.value.reason


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


def test_settings_objects_must_exist(cluster: Cluster, namespace: str) -> None:
    for document, expected in (
        ("serviceAccountName: nobody", 'serviceaccount "nobody" not found'),
        ("priorityClassName: urgent", "no PriorityClass with name urgent"),
        ("runtimeClassName: gvisor", 'RuntimeClass "gvisor" not found'),
    ):
        with temporary_object(cluster, namespace, "ConfigMap", "swe-argo-sandbox", data={"sandbox.yaml": document}):
            assert expected in refusal(cluster.kubeconfig, namespace)


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


def test_refused_run_is_one_line(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """It creates nothing, here or on the cluster."""
    store = tmp_path / "store"
    gold = ("run", "--backend", "kubernetes", "--dataset", "mini", "--agent", "gold", "--store", str(store))
    result = swe_argo(*gold, "--namespace", namespace, "--cpus", "4000", env=cluster.environment)
    assert (result.returncode, len(result.stderr.splitlines())) == (64, 1), result.stderr
    assert "sandbox.cpus: a sandbox requests 4000 cpu" in result.stderr
    assert not [path for path in store.rglob("*") if path.is_file()]
    assert cluster.kubectl("get", "pods,leases", "-n", namespace, "-o", "name") == ""


def test_chart_account_is_ready(cluster: Cluster, tmp_path: Path) -> None:
    with prepared(cluster, tmp_path) as installed:
        [notice] = check_readiness(installed.kubeconfig, installed.namespace, ACT).notices
        assert notice.startswith(
            "no right to list nodes: cannot check whether one fits a sandbox (10m cpu, 16Mi memory"
        )
        assert check_readiness(cluster.kubeconfig, installed.namespace, ACT).notices == []


@pytest.mark.parametrize("rules", [RUNNER, [*RUNNER, ("list", "resourcequotas", "")]])
@pytest.mark.parametrize("hard", [{"count/pods": "0"}, {"limits.cpu": "3", "requests.cpu": "3"}])
def test_too_small_quota_is_refused(
    cluster: Cluster, namespace: str, tmp_path: Path, hard: dict[str, str], rules: list[Rule]
) -> None:
    kubeconfig = account(cluster, namespace, tmp_path, rules)
    with temporary_object(cluster, namespace, "ResourceQuota", "tiny", spec={"hard": hard}):
        counted(cluster, namespace, "tiny", hard)
        message = refusal(kubeconfig, namespace)
    assert message.startswith("sandbox.kubernetes.namespace: ")
    assert "is too small for one sandbox" in message
    assert "tiny" in message
    assert next(iter(hard)) in message


def test_used_up_quota_is_a_notice(cluster: Cluster, namespace: str) -> None:
    pod = {"containers": [{"name": "main", "image": "localhost/none:1", "imagePullPolicy": "Never"}]}
    hard = {"count/pods": "1"}
    with (
        temporary_object(cluster, namespace, "Pod", "other", spec={**pod, "terminationGracePeriodSeconds": 0}),
        temporary_object(cluster, namespace, "ResourceQuota", "one", spec={"hard": hard}),
    ):
        counted(cluster, namespace, "one", hard, used="1")
        notices = check_readiness(cluster.kubeconfig, namespace).notices
    assert any(
        f"quota of {namespace} is used up, so sandboxes will wait: exceeded quota: one" in notice for notice in notices
    )


def counted(cluster: Cluster, namespace: str, name: str, hard: dict[str, str], used: str = "") -> None:
    """Wait until a quota is in force, and as much of it ``used``."""

    def in_force() -> bool:
        status = json.loads(cluster.kubectl("get", "resourcequota", name, "-n", namespace, "-o", "json"))["status"]
        return bool(status.get("hard") == hard and (not used or used in status.get("used", {}).values()))

    wait_for(in_force)


def test_pod_security_refusal_is_quoted(cluster: Cluster, namespace: str) -> None:
    label = "pod-security.kubernetes.io/enforce"
    cluster.kubectl("label", "namespace", namespace, f"{label}=restricted")
    try:
        assert 'violates PodSecurity "restricted:latest"' in refusal(cluster.kubeconfig, namespace)
    finally:
        cluster.kubectl("label", "namespace", namespace, f"{label}-")


@pytest.fixture
def prefixes(cluster: Cluster, namespace: str) -> Iterator[str]:
    """A policy that takes images from good.example alone."""
    name, group = f"prefixes-{namespace}", "admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [
            {
                "expression": "object.spec.containers.all(c, c.image.startsWith('good.example/'))",
                "message": "images come from good.example alone",
            }
        ],
    }
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": where}
    objects = [
        {"apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": policy},
        {"apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": binding},
    ]
    whole = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    cluster.kubectl("apply", "-f", "-", input=whole)
    try:
        wait_for(lambda: not is_admitted(cluster, namespace))
        yield "images come from good.example alone"
    finally:
        cluster.kubectl("delete", "-f", "-", input=whole)
        wait_for(lambda: is_admitted(cluster, namespace))  # a policy is in force for a moment after it is gone


def is_admitted(cluster: Cluster, namespace: str) -> bool:
    """Whether a pod of an image of bad.example would be made."""
    probe = ("run", "probe", "-n", namespace, "--image=bad.example/x:1", "--dry-run=server")
    return not cluster.try_kubectl(*probe).returncode


def test_image_policy_refusal_is_quoted(cluster: Cluster, namespace: str, prefixes: str) -> None:
    # Hundreds of valid images, and one from another registry.
    images = [*(f"good.example/hub/x-{number}:1" for number in range(500)), "docker.io/hub/y:1"]
    message = refusal(cluster.kubeconfig, namespace, replace(GRADE, images=images))
    assert message.startswith("sandbox.registry: ")
    assert "docker.io/hub/y:1" in message
    assert prefixes in message
    assert "sb-plan" not in message
    check_readiness(cluster.kubeconfig, namespace, replace(GRADE, images=images), registry="good.example/mirror")
