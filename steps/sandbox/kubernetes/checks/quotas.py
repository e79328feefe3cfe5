"""The check that a namespace's quota could ever hold one sandbox."""

from __future__ import annotations

from decimal import Decimal

from swe_argo.steps.kube.requests import Plain
from swe_argo.steps.sandbox.kubernetes.checks.amounts import KINDS, amounts, format_amount, pod_amounts


def too_small(quotas: list[Plain], pod: Plain) -> str:
    """Describe the quota that is smaller than one such pod; empty if each could hold it."""
    for quota in quotas:
        if not counts_in_quota(quota, pod):
            continue
        hard = amounts((quota.get("spec") or {}).get("hard"))
        short = {name: need for name, need in quota_needs(pod).items() if name in hard and need > hard[name]}
        if short:
            shortages = ", ".join(
                f"{name} {format_amount(name, hard[name])} of {format_amount(name, need)}"
                for name, need in short.items()
            )
            return f"quota {quota['metadata']['name']!r} allows {shortages} that one sandbox needs"
    return ""


def quota_needs(pod: Plain) -> dict[str, Decimal]:
    """Return one pod's needs by quota resource name (kubernetes.io: Resource Quotas)."""
    requests, limits = pod_amounts(pod, "requests"), pod_amounts(pod, "limits")
    amounts_needed = {"pods": Decimal(1), "count/pods": Decimal(1)}
    for kind in KINDS:
        if kind in requests:
            amounts_needed |= {kind: requests[kind], f"requests.{kind}": requests[kind]}
        if kind in limits:
            amounts_needed |= {f"limits.{kind}": limits[kind]}
    return amounts_needed


def counts_in_quota(quota: Plain, pod: Plain) -> bool:
    """Return whether such a pod counts in this quota, by its scopes."""
    spec = quota.get("spec") or {}
    selectors = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or []]
    selectors += (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    return all(_in_scope(each, pod) for each in selectors)


def _in_scope(scope: Plain, pod: Plain) -> bool:
    spec, name = pod["spec"], scope["scopeName"]
    best_effort = not pod_amounts(pod, "requests") and not pod_amounts(pod, "limits")
    if name == "PriorityClass":
        return _selects(scope, spec.get("priorityClassName") or "")
    # A sandbox has a deadline; it does not depend on other pods.
    return bool(
        {
            "BestEffort": best_effort,
            "NotBestEffort": not best_effort,
            "Terminating": spec.get("activeDeadlineSeconds") is not None,
            "NotTerminating": spec.get("activeDeadlineSeconds") is None,
        }.get(name, False)
    )


def _selects(scope: Plain, value: str) -> bool:
    values = scope.get("values") or []
    return bool(
        {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": bool(value),
            "DoesNotExist": not value,
        }.get(scope.get("operator", ""), False)
    )
