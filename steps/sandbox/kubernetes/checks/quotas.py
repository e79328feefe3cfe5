"""Check that a namespace's quota is large enough for one sandbox."""

from __future__ import annotations

from decimal import Decimal

from swe_argo.steps.kube.requests import Plain
from swe_argo.steps.sandbox.kubernetes.checks.amounts import KINDS, amounts, format_amount, pod_amounts


def too_small(quotas: list[Plain], pod: Plain) -> str:
    """Describe a quota that is too small for one such pod; return "" if there is none."""
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
            return f"quota {quota['metadata']['name']!r} allows {shortages} needed"
    return ""


def quota_needs(pod: Plain) -> dict[str, Decimal]:
    """Return a pod's amounts by quota resource name (kubernetes.io: Resource Quotas)."""
    requests, limits = pod_amounts(pod, "requests"), pod_amounts(pod, "limits")
    pod_needs = {"pods": Decimal(1), "count/pods": Decimal(1)}
    for kind in KINDS:
        if kind in requests:
            pod_needs |= {kind: requests[kind], f"requests.{kind}": requests[kind]}
        if kind in limits:
            pod_needs |= {f"limits.{kind}": limits[kind]}
    return pod_needs


def counts_in_quota(quota: Plain, pod: Plain) -> bool:
    """Return whether a pod counts in a quota: it is in all of the quota's scopes."""
    spec = quota.get("spec") or {}
    selectors = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or []]
    selectors += (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    return all(_in_scope(selector, pod) for selector in selectors)


def _in_scope(scope: Plain, pod: Plain) -> bool:
    """Return whether a pod is in a scope of a quota (kubernetes.io: Resource Quotas, Quota scopes)."""
    spec, name = pod["spec"], scope["scopeName"]
    best_effort = not pod_amounts(pod, "requests") and not pod_amounts(pod, "limits")
    if name == "PriorityClass":
        return _selects(scope, spec.get("priorityClassName") or "")
    # Terminating means a pod with a deadline. Other scopes, such as affinity to pods, never include a sandbox.
    return bool(
        {
            "BestEffort": best_effort,
            "NotBestEffort": not best_effort,
            "Terminating": spec.get("activeDeadlineSeconds") is not None,
            "NotTerminating": spec.get("activeDeadlineSeconds") is None,
        }.get(name, False)
    )


def _selects(scope: Plain, value: str) -> bool:
    """Return whether a scope's operator and values select a value; "" is none."""
    values = scope.get("values") or []
    return bool(
        {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": bool(value),
            "DoesNotExist": not value,
        }.get(scope.get("operator", ""), False)
    )
