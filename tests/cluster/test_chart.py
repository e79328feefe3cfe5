"""The chart on a real cluster: taken as it is, side by side with itself, and gone without a trace."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from swe_argo.steps.sandbox.kubernetes.namespace import NamespaceSettings
from tests.charts.chart import CASES, CHART, render, try_render
from tests.cluster.real_cluster import Cluster
from tests.cluster.release import installed, run_helm
from tests.workflows.command import wait_for

pytestmark = pytest.mark.cluster

CLUSTER_WIDE = "validatingadmissionpolicies,validatingadmissionpolicybindings,priorityclasses"
KINDS = "serviceaccounts,roles,rolebindings,networkpolicies,configmaps,resourcequotas,secrets"
EXTENSIONS = ("argoproj.io/", "ray.io/")  # what a cluster has only where it was installed: Argo Workflows, KubeRay
PARTS = {f"swe-argo-{name}" for name in ("evaluate", "shard", "nightly", "train", "round")}
PIPELINE = ["--values", str(CHART / "ci" / "s3-server-values.yaml"), "--set=nightly.enabled=true,nightly.suspend=true"]


@pytest.fixture(scope="module")
def argo(cluster: Cluster) -> None:
    """Skips where the cluster has no Argo Workflows."""
    if not has_argo(cluster):
        pytest.skip("this cluster has no Argo Workflows, so the pipeline cannot be installed")


def has_argo(cluster: Cluster) -> bool:
    return "workflowtemplates" in cluster.kubectl("api-resources", "--api-group=argoproj.io", "-o", "name")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_the_server_takes_every_case_strictly(cluster: Cluster, case: Path) -> None:
    served = cluster.kubectl("api-versions").split()
    objects = [
        each
        for each in render(case=case, namespace="default").objects
        if each["apiVersion"] in served or not each["apiVersion"].startswith(EXTENSIONS)
    ]
    flags = ["--server-side", "--dry-run=server", "--validate=strict", "--field-manager=test", "-n", "default"]
    done = cluster.try_kubectl("apply", *flags, "-f", "-", input=yaml.safe_dump_all(objects))
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(objects)
    assert "Warning" not in done.stderr


def test_a_mistyped_field_would_have_been_seen(cluster: Cluster) -> None:
    broken = try_render(namespace="default").stdout.replace("preemptionPolicy:", "preemptionPolitic:")
    flags = ["--server-side", "--dry-run=server", "--validate=strict", "-n", "default"]
    done = cluster.try_kubectl("apply", *flags, "-f", "-", input=broken)
    assert done.returncode != 0
    assert "preemptionPolitic" in done.stderr


def test_two_namespaces_have_the_chart_side_by_side_and_nothing_is_left(cluster: Cluster, tmp_path: Path) -> None:
    with (
        installed(cluster, tmp_path) as one,
        installed(cluster, tmp_path, "--set=grading.network=false", "--set=quota.enabled=true") as other,
    ):
        assert one.settings().grading_network is True
        assert other.settings().grading_network is False
        assert one.settings().priority_class_name != other.settings().priority_class_name
        for each in (one, other):
            of_it = [name for name in _names(cluster, CLUSTER_WIDE) if name.endswith(f"-{each.namespace}")]
            assert len(of_it) == 9
            assert run_helm(cluster, "uninstall", "mine", "--namespace", each.namespace).returncode == 0
            assert not [name for name in _names(cluster, CLUSTER_WIDE) if each.namespace in name]
            assert _names(cluster, KINDS, each.namespace) == {"configmap/kube-root-ca.crt", "serviceaccount/default"}
            assert run_helm(cluster, "install", "mine", str(CHART), "--namespace", each.namespace).returncode == 0


def test_the_notes_say_what_to_run(cluster: Cluster, tmp_path: Path) -> None:
    with installed(cluster, tmp_path, small=False) as release:
        notes = run_helm(cluster, "get", "notes", "mine", "--namespace", release.namespace).stdout
        assert f"swe-argo run --backend kubernetes --namespace {release.namespace}" in notes
        assert "kubectl label node NODE role=cpu-sandbox" in notes


def test_the_pipeline_comes_and_goes_and_its_notes_say_what_to_run(
    cluster: Cluster, argo: None, tmp_path: Path
) -> None:
    with installed(cluster, tmp_path, *PIPELINE) as release:
        place = ["--namespace", release.namespace]
        notes = run_helm(cluster, "get", "notes", "mine", *place).stdout
        assert f"swe-argo submit --namespace {release.namespace}" in notes
        assert "kubectl create secret generic s3-keys" in notes
        assert "swe-argo nightly list" in notes
        kinds = "workflowtemplates,cronworkflows"
        there = set(release.kubectl("get", kinds, "-o", "name").split())
        assert {each.partition("/")[2] for each in there} == PARTS
        done = run_helm(cluster, "upgrade", "mine", str(CHART), *place, "--reuse-values", "--set=argo.create=false")
        assert done.returncode == 0, done.stderr
        assert not release.kubectl("get", kinds, "-o", "name")
        assert f"swe-argo run --backend kubernetes --namespace {release.namespace}" in done.stdout
        wide = [name for name in _names(cluster, CLUSTER_WIDE) if name.endswith(f"-{release.namespace}")]
        assert len(wide) == 9


def test_an_upgrade_changes_what_runners_read(cluster: Cluster, tmp_path: Path) -> None:
    with installed(cluster, tmp_path) as release:
        flags = ["--namespace", release.namespace, "--reuse-values", "--set=sandbox.resources.limits.memory=3Gi"]
        done = run_helm(cluster, "upgrade", "mine", str(CHART), *flags)
        assert done.returncode == 0, done.stderr
        assert release.settings().resources.limits.memory == "3Gi"


def test_the_policies_expressions_have_no_mistake_that_the_server_sees(cluster: Cluster, tmp_path: Path) -> None:
    pipeline = PIPELINE if has_argo(cluster) else []
    case = ["--values", str(CHART / "ci" / "private-mirror-values.yaml")]
    with installed(cluster, tmp_path, *case, *pipeline) as release:
        found = _policies(cluster, release.namespace)
        assert len(found) == (14 if pipeline else 4)
        for policy in found:
            assert policy["status"].get("typeChecking", {}) == {}, policy["status"]


def _policies(cluster: Cluster, namespace: str) -> list[dict[str, dict[str, Any]]]:
    """The release's policies, once the server has checked their types."""

    def found() -> list[dict[str, dict[str, Any]]]:
        every = json.loads(cluster.kubectl("get", "validatingadmissionpolicies", "-o", "json"))["items"]
        return [each for each in every if each["metadata"]["name"].endswith(f"-{namespace}")]

    wait_for(lambda: all("observedGeneration" in each.get("status", {}) for each in found()))
    return found()


def test_the_settings_on_the_cluster_are_those_that_were_rendered(cluster: Cluster, tmp_path: Path) -> None:
    case = CHART / "ci" / "any-node-values.yaml"
    with installed(cluster, tmp_path, "--values", str(case), small=False) as release:
        rendered = yaml.safe_load(yaml.safe_dump(render(case=case, namespace=release.namespace).settings()))
        assert release.settings() == NamespaceSettings.model_validate(rendered)


def test_it_is_refused_where_it_is_already(cluster: Cluster, tmp_path: Path) -> None:
    with installed(cluster, tmp_path) as release:
        done: subprocess.CompletedProcess[str] = run_helm(
            cluster, "install", "another", str(CHART), "--namespace", release.namespace
        )
        assert done.returncode != 0
        assert "exists and cannot be imported" in done.stderr


def _names(cluster: Cluster, kinds: str, namespace: str = "default") -> set[str]:
    found = cluster.kubectl("get", kinds, "-n", namespace, "-o", "name").split()
    return {name.replace(".rbac.authorization.k8s.io", "").replace(".networking.k8s.io", "") for name in found}
