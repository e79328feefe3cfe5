"""What the chart's accounts may do and, tried with their real tokens, what they may not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.real_cluster import Cluster
from tests.cluster.release import Account, Manifest, Release, installed, plain_pod
from tests.workflows.command import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.core]

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"


@pytest.fixture(scope="module")
def release(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    with installed(cluster, tmp_path_factory.mktemp("access")) as chart_release:
        chart_release.kubectl("create", "secret", "generic", "keys", "--from-literal=API_KEY=secret")
        chart_release.kubectl("create", "configmap", "other", "--from-literal=a=b")
        yield chart_release


@pytest.fixture(scope="module")
def runner(release: Release) -> Account:
    return release.account("swe-argo-runner")


@pytest.fixture(scope="module")
def nobody(release: Release) -> Account:
    return release.account("swe-argo-sandbox")


@pytest.fixture(scope="module")
def solving(release: Release, sandbox_image: str) -> Manifest:
    return release.sandbox(sandbox_image)


@pytest.fixture(scope="module")
def neighbour(release: Release, sandbox_image: str) -> str:
    """A pod of somebody else in the namespace, with a token of its own."""
    release.start(plain_pod("neighbour", sandbox_image))
    return "neighbour"


def rules(account: Account) -> set[tuple[str, ...]]:
    """Every right of an account in its namespace, as the API server counts them."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": account.namespace},
    }
    answer = json.loads(account.may("create", "--validate=false", "-f", "-", "-o", "json", input=review))
    assert not answer["status"]["incomplete"]
    return {
        (group, resource, verb, *rule.get("resourceNames", []))
        for rule in answer["status"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_runner_manages_a_sandbox(runner: Account, solving: Manifest) -> None:
    name = solving["metadata"]["name"]
    runner.may("create", "-f", "-", input=solving)
    runner.may("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=600s")  # get, list, watch
    assert runner.may("exec", name, "--", "cat", "/testbed/hello.txt") == "hello\n"
    wait_for(lambda: runner.may("get", "events", "-o", "name"))  # they are written beside what they tell of
    runner.may("delete", "pod", name, "--grace-period=0", "--force")


def test_runner_manages_a_runs_lease(runner: Account) -> None:
    lease: dict[str, Any] = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "swe-argo-tonight"},
        "spec": {"holderIdentity": "one"},
    }
    runner.may("create", "-f", "-", input=lease)
    lease["spec"]["holderIdentity"] = "two"
    runner.may("replace", "-f", "-", input=lease)
    assert "swe-argo-tonight" in runner.may("get", "leases", "-o", "name")
    runner.may("delete", "lease", "swe-argo-tonight")


@pytest.mark.parametrize("asking", ["configmap/swe-argo-sandbox", "networkpolicies", "resourcequotas"])
def test_runner_reads_what_a_plan_needs(runner: Account, asking: str) -> None:
    runner.may("get", asking)


@pytest.mark.parametrize(
    "command",
    [
        "get secrets",
        "get configmap other",
        "delete configmap swe-argo-sandbox",
        "get pods -n kube-system",
        "exec -n kube-system deployment/coredns -- true",
        "get nodes",
        "create token swe-argo-sandbox",
        "create role mine --verb=get --resource=secrets",
        "create rolebinding mine --clusterrole=admin --serviceaccount=default:default",
        "delete role swe-argo-runner",
        "delete networkpolicy swe-argo-sandbox",
        "delete validatingadmissionpolicy swe-argo-sandboxes-{namespace}",
        "create deployment mine --image=localhost/mine:1",
        "label pod neighbour swe-argo/role=solve",
        "logs neighbour",
        "delete pods --all --raw=/api/v1/namespaces/{namespace}/pods",
        "get pods --as=system:admin",
    ],
)
def test_runner_is_denied(runner: Account, neighbour: str, command: str) -> None:
    assert "cannot" in runner.refused(*command.format(namespace=runner.namespace).split())


def test_runner_executes_in_sandboxes(release: Release, runner: Account, neighbour: str) -> None:
    assert "runs commands in sandboxes only" in runner.refused("exec", neighbour, "--", "cat", TOKEN)
    assert release.kubectl("exec", neighbour, "--", "cat", TOKEN)  # which is what it would have found


def test_runner_deletes_sandboxes_only(release: Release, runner: Account, neighbour: str) -> None:
    assert "deletes sandboxes only" in runner.refused("delete", "pod", neighbour)
    assert release.kubectl("get", "pod", neighbour, "-o", "jsonpath={.metadata.deletionTimestamp}") == ""


def test_runner_manages_run_leases_only(release: Release, runner: Account) -> None:
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "leader"}}
    assert "Leases of runs only" in runner.refused("create", "-f", "-", input=lease)
    release.kubectl("create", "-f", "-", input=lease)
    assert "Leases of runs only" in runner.refused("delete", "lease", "leader")


def test_foreign_account_is_a_runner(cluster: Cluster, sandbox_image: str, tmp_path: Path) -> None:
    flags = ("--set=serviceAccount.create=false", "--set=serviceAccount.name=evaluations")
    with installed(cluster, tmp_path, *flags) as theirs:
        accounts = theirs.kubectl("get", "serviceaccounts", "-o", "name").split()
        assert set(accounts) == {"serviceaccount/default", "serviceaccount/swe-argo-sandbox"}
        theirs.kubectl("create", "serviceaccount", "evaluations")
        account = theirs.account("evaluations")
        account.may("create", "--dry-run=server", "-f", "-", input=theirs.sandbox(sandbox_image))
        bad = plain_pod("other", sandbox_image)
        assert "a sandbox's name begins with sb-" in account.refused("create", "-f", "-", input=bad)
        assert "cannot" in account.refused("get", "secrets")


def test_policies_bind_the_runner_only(release: Release, sandbox_image: str) -> None:
    release.start(plain_pod("passer-by", sandbox_image))
    release.kubectl("exec", "passer-by", "--", "true")
    release.kubectl("delete", "pod", "passer-by", "--grace-period=0", "--force")


def test_runner_has_no_rights_elsewhere(cluster: Cluster, runner: Account, release: Release) -> None:
    with cluster.namespace("chart-other") as other:
        assert "cannot" in runner.refused("get", "pods", "-n", other)
        assert "cannot" in runner.refused("create", "-n", other, "-f", "-", input=plain_pod("sb-one", "localhost/a:1"))


def test_sandbox_account_has_no_rights(cluster: Cluster, nobody: Account, release: Release) -> None:
    with cluster.namespace("chart-bare") as bare:
        anyone = Release(cluster, bare, release.folder, "").account("default")
        assert rules(nobody) == rules(anyone)


def test_sandbox_has_no_token(release: Release, sandbox_image: str, neighbour: str) -> None:
    release.start(release.sandbox(sandbox_image, role="grade"))
    look = ["exec", "sb-grade-none", "--", "sh", "-c", "ls -A /var/run/secrets /run/secrets 2>/dev/null; echo looked"]
    assert release.kubectl(*look) == "looked\n"
    assert release.kubectl("exec", "sb-grade-none", "--", "sh", "-c", "env | grep -ci token || true") == "0\n"
    pod = json.loads(release.kubectl("get", "pod", "sb-grade-none", "-o", "json"))
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["jobs"]
    assert release.kubectl("exec", neighbour, "--", "ls", TOKEN) == f"{TOKEN}\n"
