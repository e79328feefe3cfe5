"""Check of the namespace's quotas against one running unit: the pods of its step and shard, and its sandbox."""

from __future__ import annotations

from decimal import Decimal

from swe_argo.workflows.argo.chart import Chart
from swe_argo.workflows.argo.engine import Plain
from swe_argo.workflows.resources import PODS, WAITER, Pod


def why_never_fits(quotas: list[Plain], chart: Chart | None) -> str:
    """Return the quota that is too small for one unit, as text; "" if every quota can hold one.

    The size of the sandbox depends on the namespace and the spec: ``plan`` tries that on the cluster.
    """
    from swe_argo.steps.sandbox.kubernetes.checks.amounts import amounts, format_amount

    pods = _pods(chart)
    for quota in quotas:
        hard = amounts((quota.get("spec") or {}).get("hard"))
        need = _need(quota, pods)
        short = [name for name in need if name in hard and need[name] > hard[name]]
        if short:
            shortages = ", ".join(
                f"{name} {format_amount(name, hard[name])} of {format_amount(name, need[name])}" for name in short
            )
            return f"quota {quota['metadata']['name']!r} allows {shortages} that it needs"
    return ""


def quota_note(quotas: list[Plain], chart: Chart | None, limits: Plain) -> list[str]:
    """Return a note if a pod quota allows fewer concurrent units than the limit of units."""
    from swe_argo.steps.sandbox.kubernetes.checks.amounts import amounts

    units = int((limits.get("data") or {}).get("units") or 0)
    for quota in quotas:
        hard = amounts((quota.get("spec") or {}).get("hard"))
        unit_pods = int(_need(quota, _pods(chart)[1:])["pods"])
        most = hard.get("pods", hard.get("count/pods"))
        if unit_pods and most is not None and int(most) // unit_pods < units:
            return [
                f"quota {quota['metadata']['name']!r} of {int(most)} pods holds {int(most) // unit_pods} units at a "
                f"time, the limit is {units}: the others wait"
            ]
    return []


def _need(quota: Plain, pods: list[Plain]) -> dict[str, Decimal]:
    """Return the amounts that these pods take of a quota, by the quota's names."""
    from swe_argo.steps.sandbox.kubernetes.checks.quotas import counts_in_quota, quota_needs

    total = {"pods": Decimal(0)}
    for pod in pods:
        for name, amount in quota_needs(pod).items() if counts_in_quota(quota, pod) else ():
            total[name] = total.get(name, Decimal(0)) + amount
    return total


def _pods(chart: Chart | None) -> list[Plain]:
    """Return the pod that waits for the shard, the pod of a step, and a sandbox without resources."""
    control, step = (chart.control_pod or {}, chart.step_pod or {}) if chart else ({}, {})
    return [_pod(WAITER, control), _pod(PODS["solve"], step), {"spec": {"activeDeadlineSeconds": 1}}]


def _pod(pod: Pod, patch: Plain) -> Plain:
    resources = {"requests": {"cpu": pod.cpu, "memory": pod.memory}, "limits": {"memory": pod.memory_limit}}
    return {
        "spec": {
            "containers": [{"resources": resources}],
            "priorityClassName": patch.get("priorityClassName"),
            **({"activeDeadlineSeconds": pod.deadline_s} if pod.deadline_s else {}),
        }
    }
