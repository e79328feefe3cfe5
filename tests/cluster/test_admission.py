"""Which pods the admission policy refuses, each for its own reason: a good one with one thing changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.real_cluster import Cluster
from tests.cluster.refused_pods import ANOTHER, CHANGES, PINNED, Change, agent_volume, box, copier, edit, inside, volume
from tests.cluster.release import Account, Manifest, Release, installed, plain_pod
from tests.workflows.command import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.core]


@pytest.fixture(scope="module")
def release(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    with installed(cluster, tmp_path_factory.mktemp("admission")) as chart_release:
        yield chart_release


@pytest.fixture(scope="module")
def strict(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """A namespace that allows less."""
    flags = ["--set=grading.network=false", "--set=sandbox.imagePrefixes={localhost/,ghcr.io/mine/}"]
    more = ["--set=sandbox.maxDeadlineSeconds=1000", "--set=priorityClass.create=false"]
    with installed(cluster, tmp_path_factory.mktemp("strict"), *flags, *more) as chart_release:
        yield chart_release


@pytest.fixture(scope="module")
def lax(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """A namespace that allows more."""
    flags = ["--set=sandbox.solveNetwork=true", "--set=sandbox.browsers=true"]
    with installed(cluster, tmp_path_factory.mktemp("lax"), *flags) as chart_release:
        yield chart_release


@pytest.fixture(scope="module")
def runner(release: Release) -> Account:
    return release.account("swe-argo-runner")


def offer(account: Account, pod: Manifest) -> str:
    """What the server says against a pod, empty if nothing."""
    result = account.tries("create", "--dry-run=server", "--validate=false", "-f", "-", input=pod)
    return result.stderr if result.returncode else ""


@pytest.mark.parametrize(("role", "network"), [("solve", False), ("grade", False), ("grade", True)])
def test_policy_admits_backend_pods(release: Release, runner: Account, role: str, network: bool) -> None:
    assert offer(runner, release.sandbox("swebench/any:latest", role=role, network=network)) == ""


@pytest.mark.parametrize("change", [copier(), agent_volume()])
def test_policy_admits_agent_files(release: Release, runner: Account, change: Change) -> None:
    pod = release.sandbox("localhost/one:1")
    change(pod)
    assert offer(runner, pod) == ""


@pytest.mark.parametrize("change_name", CHANGES)
def test_policy_refuses_each_change(release: Release, runner: Account, change_name: str) -> None:
    pod = release.sandbox("localhost/one:1")
    change, reason = CHANGES[change_name]
    change(pod)
    message = offer(runner, pod)
    assert f"ValidatingAdmissionPolicy 'swe-argo-sandboxes-{release.namespace}'" in message
    assert reason in message


def test_pod_may_own_sandboxes(release: Release, runner: Account) -> None:
    pod = release.sandbox("localhost/one:1")
    pod["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "step", "uid": "u"}]
    assert offer(runner, pod) == ""


def administrator(release: Release) -> Account:
    return Account(release.cluster, release.namespace, release.cluster.kubeconfig)


@pytest.mark.parametrize("change_name", ["host path", "token", "no deadline"])
def test_policy_binds_administrators(release: Release, change_name: str) -> None:
    pod = release.sandbox("localhost/one:1")
    change, reason = CHANGES[change_name]
    change(pod)
    assert reason in offer(administrator(release), pod)


def test_policy_reserves_sandbox_names(release: Release) -> None:
    assert "label swe-argo/role" in offer(administrator(release), plain_pod("sb-mine", "localhost/one:1"))


def test_policy_ignores_other_pods(release: Release) -> None:
    pod = plain_pod("mine", "localhost/one:1")
    pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    assert offer(administrator(release), pod) == ""


def test_policy_ignores_other_namespaces(cluster: Cluster, release: Release) -> None:
    with cluster.namespace("chart-other") as other:
        elsewhere = replace(administrator(release), namespace=other)
        assert offer(elsewhere, plain_pod("sb-mine", "localhost/one:1", **{"swe-argo/role": "solve"})) == ""


def test_sandbox_cannot_be_changed(release: Release, sandbox_image: str) -> None:
    """Labels are what policies select by: without them, it would have the network of any pod."""
    pod = release.sandbox(sandbox_image, role="grade")
    release.start(pod)
    admin, name = administrator(release), pod["metadata"]["name"]
    assert "label swe-argo/role" in admin.refused("label", "pod", name, "swe-argo/role-")
    debug = {"spec": {"ephemeralContainers": [{**ANOTHER, "securityContext": {"privileged": True}}]}}
    patch = ["patch", "pod", name, "--subresource=ephemeralcontainers", "-p", json.dumps(debug)]
    assert "no ephemeral containers" in admin.refused(*patch)
    assert "labels that the project does not set: swe-argo/step" in admin.refused(
        "label", "pod", name, "swe-argo/step=a"
    )
    assert "no finalizers" in admin.refused(
        "patch", "pod", name, "-p", '{"metadata": {"finalizers": ["example.org/a"]}}'
    )
    admin.may("annotate", "pod", name, "note=any")
    admin.may("delete", "pod", name, "--timeout=600s")


def test_strict_policy_names_values(strict: Release) -> None:
    runner = strict.account("swe-argo-runner")
    assert offer(runner, strict.sandbox("localhost/one:1", role="grade")) == ""
    assert offer(runner, strict.sandbox("ghcr.io/mine/one:1")) == ""
    message = offer(runner, strict.sandbox("ghcr.io/mine-not/one:1"))
    assert "image ghcr.io/mine-not/one:1 begins with none of localhost/, ghcr.io/mine/" in message
    assert "chart value sandbox.imagePrefixes" in message
    assert "chart value grading.network" in offer(runner, strict.sandbox("localhost/one:1", role="grade", network=True))
    for change in (copier(image=f"evil/{PINNED}"), agent_volume(reference=f"evil/{PINNED}")):
        change(pod := strict.sandbox("localhost/one:1"))
        assert f"image evil/{PINNED} begins with none of" in offer(runner, pod)
    pod = strict.sandbox("localhost/one:1")
    pod["spec"]["activeDeadlineSeconds"] = 1001
    assert "at most 1000" in offer(runner, pod)
    pod = strict.sandbox("localhost/one:1")
    pod["spec"]["priorityClassName"] = "system-node-critical"
    assert "no priority class of the system" in offer(runner, pod)


def test_lax_policy_admits_more(lax: Release) -> None:
    runner = lax.account("swe-argo-runner")
    assert offer(runner, lax.sandbox("localhost/one:1", network=True, browsers=True)) == ""
    pod = lax.sandbox("localhost/one:1", browsers=True)
    box(pod)["securityContext"]["capabilities"]["add"].append("NET_ADMIN")
    assert "no capability but SYS_ADMIN" in offer(runner, pod)


def test_policy_enforces_chart_nodes(cluster: Cluster, tmp_path: Path) -> None:
    values = ["--set=sandbox.maxResources.memory=9Gi", "--set=sandbox.resources.limits.cpu=null"]
    with installed(cluster, tmp_path, *values, small=False) as other:
        runner = other.account("swe-argo-runner")
        pod = other.sandbox("localhost/one:1")
        assert offer(runner, pod) == ""
        for selector in ({"role": "control"}, {}, {"role": "cpu-sandbox", "disk": "fast"}):
            changed = {**pod, "spec": {**pod["spec"], "nodeSelector": selector}}
            assert "(chart value sandbox.nodeSelector)" in offer(runner, changed)
        box(pod)["resources"]["requests"]["cpu"] = "33"
        assert "at most 32 of cpu (chart value sandbox.maxResources)" in offer(runner, pod)
        box(pod)["resources"]["requests"]["cpu"] = "1"
        box(pod)["resources"]["limits"]["memory"] = "9217Mi"
        assert "at most 9Gi of memory (chart value sandbox.maxResources)" in offer(runner, pod)


def test_policy_admits_chart_values_only(cluster: Cluster, tmp_path: Path) -> None:
    nodes = ["--set=sandbox.tolerations[0].key=gpu,sandbox.tolerations[0].operator=Exists"]
    nodes += ["--set=sandbox.tolerations[1].key=role,sandbox.tolerations[1].value=box"]
    nodes += ["--set=sandbox.tolerations[1].effect=NoExecute,sandbox.tolerations[1].tolerationSeconds=300"]
    more = ["--set=sandbox.nameservers={10.0.0.2,fd00::2}", "--set=sandbox.imagePullSecrets={mirror,hub}"]
    with installed(cluster, tmp_path, *nodes, *more, "--set=sandbox.resources.limits.cpu=null") as other:
        runner = other.account("swe-argo-runner")
        for network in (False, True):
            assert offer(runner, other.sandbox("localhost/one:1", role="grade", network=network)) == ""
        refused = {
            "chart value sandbox.tolerations": edit("spec", "tolerations", 1, "tolerationSeconds", to=301),
            "chart value sandbox.imagePullSecrets": edit("spec", "imagePullSecrets", 0, "name", to="keys"),
            "the nameservers 10.0.0.2, fd00::2 (chart value": edit("spec", "dnsConfig", "nameservers", to=["10.0.0.2"]),
            "limits of ephemeral-storage, memory": inside("resources", {"limits": {"memory": "1Gi"}}),
        }
        for reason, change in refused.items():
            pod = other.sandbox("localhost/one:1", role="grade", network=True)
            change(pod)
            assert reason in offer(runner, pod)


def test_image_volume_is_not_admitted(release: Release, runner: Account) -> None:
    pod = release.sandbox("localhost/one:1")
    volume(image={"reference": PINNED})(pod)
    result = runner.tries("create", "--dry-run=server", "--validate=false", "-o", "json", "-f", "-", input=pod)
    if result.returncode:
        assert "volumes are of type emptyDir" in result.stderr
    else:  # before Kubernetes 1.35 the API server takes such a volume out
        assert [item["name"] for item in json.loads(result.stdout)["spec"]["volumes"]] == ["jobs"]


def test_unnamed_runtime_is_refused(release: Release, runner: Account) -> None:
    name = f"lax-{release.namespace}"
    runtime_class = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": "lax",
    }
    release.kubectl("create", "-f", "-", input=runtime_class)
    try:
        pod = release.sandbox("localhost/one:1")
        pod["spec"]["runtimeClassName"] = name
        wait_for(lambda: "not found" not in offer(runner, pod))
        assert "no runtime class (chart value sandbox.runtimeClassName)" in offer(runner, pod)
    finally:
        release.kubectl("delete", "runtimeclass", name)


def test_chart_runtime_class_is_required(cluster: Cluster, tmp_path: Path) -> None:
    with installed(cluster, tmp_path, "--set=sandbox.runtimeClassName=gvisor") as caged:
        pod = caged.sandbox("localhost/one:1")
        assert pod["spec"].pop("runtimeClassName") == "gvisor"
        assert "chart value sandbox.runtimeClassName" in offer(administrator(caged), pod)
