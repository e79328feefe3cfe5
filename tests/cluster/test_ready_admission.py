"""What plan says of a real cluster that would not take the sandboxes: its quotas, limits and policies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.accounts import RUNNER, Rule, account
from tests.cluster.planning import GRADE, check_readiness, refusal, refused_run, temporary_object
from tests.cluster.real_cluster import Cluster
from tests.workflows.command import wait_for

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    """A bare namespace, without the chart."""
    with cluster.namespace("ready") as name:
        yield name


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


def test_limit_range_refusal_is_quoted(cluster: Cluster, namespace: str) -> None:
    limits = {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}
    with temporary_object(cluster, namespace, "LimitRange", "low", spec=limits):
        message = refusal(cluster.kubeconfig, namespace)
    assert "maximum cpu usage per Container is 1, but limit is 4" in message


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
    # The one image of another registry, among hundreds of good ones.
    images = [*(f"good.example/hub/x-{number}:1" for number in range(500)), "docker.io/hub/y:1"]
    message = refusal(cluster.kubeconfig, namespace, replace(GRADE, images=images))
    assert message.startswith("sandbox.registry: ")
    assert "docker.io/hub/y:1" in message
    assert prefixes in message
    assert "sb-plan" not in message
    check_readiness(cluster.kubeconfig, namespace, replace(GRADE, images=images), registry="good.example/mirror")


def test_policy_refusal_is_one_line(cluster: Cluster, namespace: str, prefixes: str, tmp_path: Path) -> None:
    assert prefixes in refused_run(cluster, namespace, tmp_path)
    hard = {"count/pods": "0"}
    with temporary_object(cluster, namespace, "ResourceQuota", "tiny", spec={"hard": hard}):
        counted(cluster, namespace, "tiny", hard)
        assert "is too small for one sandbox" in refused_run(cluster, namespace, tmp_path)
