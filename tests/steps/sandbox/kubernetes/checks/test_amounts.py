"""Amounts of pods, as numbers and in words."""

from __future__ import annotations

from decimal import Decimal

import pytest

from swe_argo.steps.sandbox.kubernetes.checks.amounts import format_amount, format_amounts, pod_amounts

POD = {
    "spec": {
        "overhead": {"cpu": "100m"},
        "containers": [
            {"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "2", "memory": "1Gi"}}},
            {"resources": {"requests": {"memory": "512Mi"}}},
            {},
        ],
    }
}


def test_containers_add_up_and_a_limit_without_request_is_one() -> None:
    assert pod_amounts(POD, "requests") == {"cpu": Decimal("0.6"), "memory": Decimal(3 << 29)}
    assert pod_amounts(POD, "limits") == {"cpu": Decimal("2.1"), "memory": Decimal(1 << 30)}
    assert pod_amounts({"spec": {}}, "requests") == {}


@pytest.mark.parametrize(
    ("name", "amount", "told"),
    [
        ("cpu", "0.5", "500m"),
        ("limits.cpu", "64", "64"),
        ("memory", str(3 << 29), "1.5Gi"),
        ("memory", str(10240 << 30), "10240Gi"),
        ("memory", str(16 << 20), "16Mi"),
        ("count/pods", "0", "0"),
    ],
)
def test_amounts_are_told_as_a_person_writes_them(name: str, amount: str, told: str) -> None:
    assert format_amount(name, Decimal(amount)) == told


def test_several_are_told_together() -> None:
    assert format_amounts({"memory": Decimal(1 << 30), "cpu": Decimal(2), "pods": Decimal(1)}) == "2 cpu, 1Gi memory"
