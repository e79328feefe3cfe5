"""The chart on a real cluster: taken as it is, side by side with itself, and gone without a trace."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.charts.chart import CASES, CHART, render
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
def test_server_accepts_every_case(cluster: Cluster, case: Path) -> None:
    served = cluster.kubectl("api-versions").split()
    objects = [
        item
        for item in render(case=case, namespace="default").objects
        if item["apiVersion"] in served or not item["apiVersion"].startswith(EXTENSIONS)
    ]
    flags = ["--server-side", "--dry-run=server", "--validate=strict", "--field-manager=test", "-n", "default"]
    result = cluster.try_kubectl("apply", *flags, "-f", "-", input=yaml.safe_dump_all(objects))
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == len(objects)
    assert "Warning" not in result.stderr


def test_chart_fits_two_namespaces(cluster: Cluster, tmp_path: Path) -> None:
    with (
        installed(cluster, tmp_path) as one,
        installed(cluster, tmp_path, "--set=grading.network=false", "--set=quota.enabled=true") as other,
    ):
        assert one.settings().grading_network is True
        assert other.settings().grading_network is False
        assert one.settings().priority_class_name != other.settings().priority_class_name
        for release in (one, other):
            of_it = [name for name in _names(cluster, CLUSTER_WIDE) if name.endswith(f"-{release.namespace}")]
            assert len(of_it) == 9
            assert run_helm(cluster, "uninstall", "mine", "--namespace", release.namespace).returncode == 0
            assert not [name for name in _names(cluster, CLUSTER_WIDE) if release.namespace in name]
            assert _names(cluster, KINDS, release.namespace) == {"configmap/kube-root-ca.crt", "serviceaccount/default"}
            assert run_helm(cluster, "install", "mine", str(CHART), "--namespace", release.namespace).returncode == 0


def test_notes_name_the_run_command(cluster: Cluster, tmp_path: Path) -> None:
    with installed(cluster, tmp_path, small=False) as release:
        notes = run_helm(cluster, "get", "notes", "mine", "--namespace", release.namespace).stdout
        assert f"swe-argo run --backend kubernetes --namespace {release.namespace}" in notes
        assert "kubectl label node NODE role=cpu-sandbox" in notes


def test_pipeline_comes_and_goes(cluster: Cluster, argo: None, tmp_path: Path) -> None:
    with installed(cluster, tmp_path, *PIPELINE) as release:
        place = ["--namespace", release.namespace]
        notes = run_helm(cluster, "get", "notes", "mine", *place).stdout
        assert f"swe-argo submit --namespace {release.namespace}" in notes
        assert "kubectl create secret generic s3-keys" in notes
        assert "swe-argo nightly list" in notes
        kinds = "workflowtemplates,cronworkflows"
        objects = set(release.kubectl("get", kinds, "-o", "name").split())
        assert {template.partition("/")[2] for template in objects} == PARTS
        result = run_helm(cluster, "upgrade", "mine", str(CHART), *place, "--reuse-values", "--set=argo.create=false")
        assert result.returncode == 0, result.stderr
        assert not release.kubectl("get", kinds, "-o", "name")
        assert f"swe-argo run --backend kubernetes --namespace {release.namespace}" in result.stdout
        wide = [name for name in _names(cluster, CLUSTER_WIDE) if name.endswith(f"-{release.namespace}")]
        assert len(wide) == 9


def test_upgrade_changes_runner_settings(cluster: Cluster, tmp_path: Path) -> None:
    with installed(cluster, tmp_path) as release:
        flags = ["--namespace", release.namespace, "--reuse-values", "--set=sandbox.resources.limits.memory=3Gi"]
        result = run_helm(cluster, "upgrade", "mine", str(CHART), *flags)
        assert result.returncode == 0, result.stderr
        assert release.settings().resources.limits.memory == "3Gi"


def test_policy_expressions_type_check(cluster: Cluster, tmp_path: Path) -> None:
    pipeline = PIPELINE if has_argo(cluster) else []
    case = ["--values", str(CHART / "ci" / "private-mirror-values.yaml")]
    with installed(cluster, tmp_path, *case, *pipeline) as release:
        policies = _policies(cluster, release.namespace)
        assert len(policies) == (14 if pipeline else 4)
        for policy in policies:
            assert policy["status"].get("typeChecking", {}) == {}, policy["status"]


def _policies(cluster: Cluster, namespace: str) -> list[dict[str, dict[str, Any]]]:
    """The release's policies, once the server has checked their types."""

    def list_policies() -> list[dict[str, dict[str, Any]]]:
        every = json.loads(cluster.kubectl("get", "validatingadmissionpolicies", "-o", "json"))["items"]
        return [policy for policy in every if policy["metadata"]["name"].endswith(f"-{namespace}")]

    wait_for(lambda: all("observedGeneration" in item.get("status", {}) for item in list_policies()))
    return list_policies()


def test_second_install_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    with installed(cluster, tmp_path) as release:
        result: subprocess.CompletedProcess[str] = run_helm(
            cluster, "install", "another", str(CHART), "--namespace", release.namespace
        )
        assert result.returncode != 0
        assert "exists and cannot be imported" in result.stderr


def _names(cluster: Cluster, kinds: str, namespace: str = "default") -> set[str]:
    names = cluster.kubectl("get", kinds, "-n", namespace, "-o", "name").split()
    return {name.replace(".rbac.authorization.k8s.io", "").replace(".networking.k8s.io", "") for name in names}
