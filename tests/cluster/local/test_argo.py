"""Argo Workflows on the cluster of one machine."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.real_cluster import Cluster
from tests.workflows.command import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.argo]

SERVER = "http://10.244.0.1:9046"
METRICS = "http://10.244.0.1:9090/metrics"
RULE = {"apiGroups": ["argoproj.io"], "resources": ["workflowtaskresults"], "verbs": ["create", "patch"]}


@pytest.fixture(autouse=True)
def with_argo(cluster: Cluster) -> None:
    if not (cluster.state / "argo").is_dir():
        pytest.skip("no Argo on this cluster: make argo-binaries, then cluster/local/cluster argo")


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace whose default account may do what the executor asks of it."""
    with cluster.namespace("argo") as name:
        cluster.kubectl(
            "-n", name, "apply", "-f", "-", input=json.dumps({"kind": "List", "apiVersion": "v1", "items": _rights()})
        )
        yield name


def _rights() -> list[dict[str, Any]]:
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "executor"}}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "executor"}
    subjects = [{"kind": "ServiceAccount", "name": "default"}]
    return [
        {**head, "kind": "Role", "rules": [RULE]},
        {**head, "kind": "RoleBinding", "roleRef": ref, "subjects": subjects},
    ]


def _image(cluster: Cluster) -> str:
    return next(name for name in cluster.images() if name.startswith("localhost/argoexec:"))


def test_status_names_the_controller(cluster: Cluster) -> None:
    assert "\nworkflow-controller      pid " in cluster.command("status").stdout


def test_workflow_passes_step_output(cluster: Cluster, namespace: str) -> None:
    say = {"image": _image(cluster), "command": ["argoexec", "version", "--short"], "imagePullPolicy": "IfNotPresent"}
    parameters = [{"name": "said", "value": "{{tasks.one.outputs.result}}"}]
    two = {"name": "two", "template": "none", "depends": "one", "arguments": {"parameters": parameters}}
    templates: list[dict[str, Any]] = [
        {"name": "say", "container": {**say, "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}},
        {"name": "none", "inputs": {"parameters": [{"name": "said"}]}, "suspend": {"duration": "1s"}},
        {"name": "both", "dag": {"tasks": [{"name": "one", "template": "say"}, two]}},
    ]
    workflow = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "one"},
        "spec": {"entrypoint": "both", "templates": templates},
    }
    cluster.kubectl("-n", namespace, "create", "-f", "-", input=json.dumps(workflow))
    condition = "--for=jsonpath={.status.phase}=Succeeded"
    cluster.kubectl("-n", namespace, "wait", condition, "workflow/one", "--timeout=180s")
    status = json.loads(cluster.kubectl("-n", namespace, "get", "workflow/one", "-o", "json"))["status"]
    (inputs,) = [node["inputs"]["parameters"] for node in status["nodes"].values() if node["displayName"] == "two"]
    assert inputs[0]["value"].startswith("argoexec: v4")


def test_full_schemas_are_in_force(cluster: Cluster, namespace: str) -> None:
    wrong = {"entrypoint": "a", "templates": [{"name": "a", "suspend": {}, "dag": {"tasks": []}}]}
    workflow = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "two"}, "spec": wrong}
    result = cluster.try_kubectl("-n", namespace, "create", "-f", "-", input=json.dumps(workflow))
    assert "template must have at most one template type" in result.stderr


def test_argo_again_restarts_nothing(cluster: Cluster) -> None:
    before = {path.name: path.read_text() for path in (cluster.state / "run").iterdir()}
    result = cluster.command("argo")
    if "lacks" in result.stderr:
        pytest.skip(result.stderr)
    assert result.returncode == 0, result.stderr
    assert {path.name: path.read_text() for path in (cluster.state / "run").iterdir()} == before


def test_controller_metrics_are_readable() -> None:
    with urllib.request.urlopen(METRICS, timeout=60) as answer:
        assert b"argo_workflows_queue_depth_gauge" in answer.read()


def test_argo_server_enforces_rbac(cluster: Cluster, namespace: str) -> None:
    if not (cluster.state / "bin" / "argo").exists():
        pytest.skip("ARGO_HOME had no argo, so there is no argo-server")
    cluster.kubectl("-n", namespace, "create", "serviceaccount", "reader")
    cluster.kubectl("-n", namespace, "create", "role", "reader", "--verb=list", "--resource=workflows.argoproj.io")
    cluster.kubectl(
        "-n", namespace, "create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace}:reader"
    )
    token = cluster.kubectl("-n", namespace, "create", "token", "reader").strip()
    wait_for(lambda: _status_of(f"workflows/{namespace}", token) == 200)  # once the API server has learned of the role
    assert _status_of("workflows/kube-system", token) == 403
    assert _status_of(f"workflows/{namespace}", "") == 401


def _status_of(path: str, token: str) -> int:
    request = urllib.request.Request(f"{SERVER}/api/v1/{path}", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code
