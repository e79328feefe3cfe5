"""Which pods are tried, and what a quota's refusal means."""

from __future__ import annotations

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.sandbox.kubernetes.checks.admission import (
    MOST_IMAGES,
    example_images,
    never_fits,
    pods_of,
    without_pod_name,
)
from swe_argo.steps.sandbox.kubernetes.namespace import NamespaceSettings
from swe_argo.steps.sandbox.readiness import SandboxNeeds


def test_example_images_differ_in_kind() -> None:
    official = [f"swebench/sweb.eval.x86_64.a_1776_a-{number}:latest" for number in range(500)]
    unusual = ["namanjain12/orange3_final:0123abc", "ghcr.io/me/a:1", "ghcr.io/me/b:2", "ghcr.io/me/b@sha256:00"]
    assert example_images([*official, *unusual], None) == [official[0], unusual[0], unusual[1], unusual[3]]


def test_missing_tag_is_latest() -> None:
    assert example_images(["registry:5000/a", "registry:5000/b:latest", "registry:5000/c:1"], None) == [
        "registry:5000/a",
        "registry:5000/c:1",
    ]


def test_kinds_follow_registry_rewrite() -> None:
    assert example_images(["docker.io/a/x:1", "ghcr.io/a/y:1"], "mirror.example/hub") == ["docker.io/a/x:1"]


def test_example_images_are_limited() -> None:
    assert len(example_images([f"host{number}.example/a:1" for number in range(500)], None)) == MOST_IMAGES


def describe_trial_pods(solves: bool, images: list[str]) -> list[tuple[str, str, str]]:
    needs = SandboxNeeds(images=images, acts=False, solves=solves, grading_network=True, timeout_s=1800)
    pods = pods_of(SandboxSpec(backend="kubernetes"), needs, NamespaceSettings())
    return [
        (
            pod["metadata"]["labels"]["swe-argo/role"],
            pod["metadata"]["labels"]["swe-argo/network"],
            pod["spec"]["containers"][0]["image"],
        )
        for pod in pods
    ]


def test_each_role_is_tried_once() -> None:
    assert describe_trial_pods(True, ["a/x:1", "b/x:1"]) == [
        ("solve", "none", "a/x:1"),
        ("grade", "open", "a/x:1"),
        ("grade", "open", "b/x:1"),
    ]
    assert describe_trial_pods(False, ["a/x:1"]) == [("grade", "open", "a/x:1")]


def test_trial_pod_has_policy_fields() -> None:
    needs = SandboxNeeds(images=["a/x:1"], acts=False, solves=False, grading_network=True, timeout_s=1800)
    [pod] = pods_of(SandboxSpec(backend="kubernetes"), needs, NamespaceSettings())
    assert pod["metadata"]["name"].startswith("sb-")
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "Lease"
    assert pod["spec"]["activeDeadlineSeconds"] > 1800


FULL = 'pods "sb-plan-grade-00" is forbidden: exceeded quota: q, requested: {}, used: {}, limited: {}'


def test_used_up_quota_is_not_too_small() -> None:
    assert not never_fits(FULL.format("count/pods=1", "count/pods=11", "count/pods=11"))
    assert not never_fits(
        FULL.format("limits.memory=8Gi,pods=1", "limits.memory=8Gi,pods=1", "limits.memory=10Gi,pods=1")
    )
    assert never_fits(FULL.format("count/pods=1", "count/pods=0", "count/pods=0"))
    assert never_fits(FULL.format("limits.cpu=4,pods=1", "limits.cpu=0,pods=0", "limits.cpu=3500m,pods=5"))


def test_trial_pod_name_is_not_shown() -> None:
    assert without_pod_name(FULL.format("a=1", "a=0", "a=0")).startswith("exceeded quota: q")
    assert without_pod_name('Pod "sb-plan-solve-01" is invalid: spec: no') == "spec: no"
