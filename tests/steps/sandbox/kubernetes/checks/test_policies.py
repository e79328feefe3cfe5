"""What NetworkPolicies say of sandboxes."""

from __future__ import annotations

from typing import Any

import pytest

from swe_argo.steps.sandbox.kubernetes.checks.policies import cut_off, is_confined

SOLVE = {"swe-argo/role": "solve", "swe-argo/network": "none"}
SANDBOXES = {"matchExpressions": [{"key": "swe-argo/role", "operator": "Exists"}]}


def policy(selector: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"podSelector": selector, **spec}}


@pytest.mark.parametrize(
    "selector",
    [
        {},
        SANDBOXES,
        {"matchLabels": {"swe-argo/network": "none"}},
        {"matchExpressions": [{"key": "swe-argo/role", "operator": "In", "values": ["grade", "solve"]}]},
        {"matchExpressions": [{"key": "swe-argo/role", "operator": "NotIn", "values": ["grade"]}]},
        {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]},
    ],
)
def test_egress_policy_confines(selector: dict[str, Any]) -> None:
    assert is_confined([policy(selector, policyTypes=["Egress"])], SOLVE)


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {"app": "web"}},
        {"matchLabels": {"swe-argo/role": "solve", "app": "web"}},
        {"matchExpressions": [{"key": "swe-argo/role", "operator": "In", "values": ["grade"]}]},
        {"matchExpressions": [{"key": "swe-argo/role", "operator": "DoesNotExist"}]},
        {"matchLabels": {"swe-argo/role": "solve"}, "matchExpressions": [{"key": "app", "operator": "Exists"}]},
    ],
)
def test_policy_of_other_pods_is_ignored(selector: dict[str, Any]) -> None:
    assert not is_confined([policy(selector, policyTypes=["Egress"])], SOLVE)


def test_ingress_policy_does_not_confine() -> None:
    assert not is_confined([policy({}, policyTypes=["Ingress"]), policy({}), policy({}, egress=[])], SOLVE)


def test_egress_rules_imply_egress_type() -> None:
    assert is_confined([policy({}, egress=[{"ports": [{"port": 443}]}])], SOLVE)


def test_policies_add_up() -> None:
    shut, opened = policy(SANDBOXES, policyTypes=["Egress"]), policy({}, policyTypes=["Egress"], egress=[{}])
    assert cut_off([shut], SOLVE)
    assert not cut_off([shut, opened], SOLVE)
    assert not cut_off([policy({"matchLabels": {"app": "web"}}, policyTypes=["Egress"])], SOLVE)
