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


def test_container_amounts_add_up() -> None:
    assert pod_amounts(POD, "requests") == {"cpu": Decimal("0.6"), "memory": Decimal(3 << 29)}
    assert pod_amounts(POD, "limits") == {"cpu": Decimal("2.1"), "memory": Decimal(1 << 30)}
    assert pod_amounts({"spec": {}}, "requests") == {}


@pytest.mark.parametrize(
    ("name", "amount", "expected"),
    [
        ("cpu", "0.5", "500m"),
        ("limits.cpu", "64", "64"),
        ("memory", str(3 << 29), "1.5Gi"),
        ("memory", str(10240 << 30), "10240Gi"),
        ("memory", str(16 << 20), "16Mi"),
        ("count/pods", "0", "0"),
    ],
)
def test_format_amount_uses_common_units(name: str, amount: str, expected: str) -> None:
    assert format_amount(name, Decimal(amount)) == expected


def test_format_amounts_joins_several() -> None:
    assert format_amounts({"memory": Decimal(1 << 30), "cpu": Decimal(2), "pods": Decimal(1)}) == "2 cpu, 1Gi memory"
