"""Which quotas could ever hold one sandbox."""

from __future__ import annotations

from typing import Any

import pytest

from swe_argo.steps.sandbox.kubernetes.checks.quotas import too_small

POD: dict[str, Any] = {
    "metadata": {"name": "sb-x"},
    "spec": {
        "activeDeadlineSeconds": 60,
        "priorityClassName": "sandboxes",
        "containers": [
            {"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "8Gi"}}}
        ],
    },
}


def quota(hard: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}}


@pytest.mark.parametrize(
    ("hard", "expected"),
    [
        ({"requests.cpu": "250m"}, "requests.cpu 250m of 500m"),
        ({"cpu": "250m"}, "cpu 250m of 500m"),
        ({"limits.memory": "4Gi"}, "limits.memory 4Gi of 8Gi"),
        ({"memory": "512Mi"}, "memory 512Mi of 1Gi"),
        ({"count/pods": "0"}, "count/pods 0 of 1"),
        ({"pods": "0"}, "pods 0 of 1"),
    ],
)
def test_quota_below_one_pod_is_named(hard: dict[str, str], expected: str) -> None:
    assert too_small([quota({"services": "0"}), quota(hard)], POD) == f"quota 'q' allows {expected} needed"


def test_quota_of_one_pod_is_enough() -> None:
    full = quota({"requests.cpu": "500m", "limits.cpu": "4", "limits.memory": "8Gi", "pods": "1"})
    full["status"] = {"used": {"pods": "1"}}
    assert not too_small([full], POD)


@pytest.mark.parametrize(
    ("spec", "counts"),
    [
        ({"scopes": ["Terminating"]}, True),
        ({"scopes": ["NotTerminating"]}, False),
        ({"scopes": ["NotBestEffort"]}, True),
        ({"scopes": ["BestEffort"]}, False),
        ({"scopes": ["Terminating", "BestEffort"]}, False),
        ({"scopes": ["CrossNamespacePodAffinity"]}, False),
        ({"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["sandboxes"]}]}}, True),
        ({"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "NotIn", "values": ["sandboxes"]}]}}, False),
        ({"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "DoesNotExist"}]}}, False),
        ({"scopeSelector": {"matchExpressions": [
            {"scopeName": "Terminating", "operator": "Exists"}]}}, True),
    ],
)  # fmt: skip
def test_quota_outside_scope_is_ignored(spec: dict[str, Any], counts: bool) -> None:
    assert bool(too_small([quota({"pods": "0"}, **spec)], POD)) is counts
