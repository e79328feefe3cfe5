"""Check of the namespace's quotas against one running unit: the pods of its step and shard, and its sandbox."""

from __future__ import annotations

from decimal import Decimal

from swe_argo.workflows.argo.chart import Chart
from swe_argo.workflows.argo.engine import Plain
from swe_argo.workflows.resources import PODS, WAITER, Pod


def describe_small_quota(quotas: list[Plain], chart: Chart | None) -> str:
    """Describe the first quota that is too small for one unit; return "" if there is none.

    The size of the sandbox depends on the namespace and the spec; ``plan`` checks it on the cluster.
    """
    from swe_argo.steps.sandbox.kubernetes.checks.amounts import amounts, format_amount

    pods = _unit_pods(chart)
    for quota in quotas:
        hard = amounts((quota.get("spec") or {}).get("hard"))
        need = _count_need(quota, pods)
        small = [name for name in need if name in hard and need[name] > hard[name]]
        if small:
            shortages = ", ".join(
                f"{name} {format_amount(name, hard[name])} of {format_amount(name, need[name])}" for name in small
            )
            return f"quota {quota['metadata']['name']!r} allows {shortages} needed"
    return ""


def quota_note(quotas: list[Plain], chart: Chart | None, limits: Plain) -> list[str]:
    """Return a note if a pod quota allows fewer concurrent units than the limit of units."""
    from swe_argo.steps.sandbox.kubernetes.checks.amounts import amounts

    units = int((limits.get("data") or {}).get("units") or 0)
    for quota in quotas:
        hard = amounts((quota.get("spec") or {}).get("hard"))
        # Without the first pod, which waits for a whole shard and not for one unit.
        unit_pods = int(_count_need(quota, _unit_pods(chart)[1:])["pods"])
        pod_limit = hard.get("pods", hard.get("count/pods"))
        if unit_pods and pod_limit is not None and int(pod_limit) // unit_pods < units:
            return [
                f"quota {quota['metadata']['name']!r} of {int(pod_limit)} pods allows {int(pod_limit) // unit_pods} "
                f"concurrent units, the limit is {units}: the rest wait"
            ]
    return []


def _count_need(quota: Plain, pods: list[Plain]) -> dict[str, Decimal]:
    """Return the amounts of a quota that these pods use, by the quota's names."""
    from swe_argo.steps.sandbox.kubernetes.checks.quotas import counts_in_quota, quota_needs

    total = {"pods": Decimal(0)}
    for pod in pods:
        for name, amount in quota_needs(pod).items() if counts_in_quota(quota, pod) else ():
            total[name] = total.get(name, Decimal(0)) + amount
    return total


def _unit_pods(chart: Chart | None) -> list[Plain]:
    """Return the pod that waits for the shard, the pod of a step, and a sandbox without resources."""
    control, step = (chart.control_pod or {}, chart.step_pod or {}) if chart else ({}, {})
    return [_quota_view(WAITER, control), _quota_view(PODS["solve"], step), {"spec": {"activeDeadlineSeconds": 1}}]


def _quota_view(pod: Pod, patch: Plain) -> Plain:
    """Return the part of a pod that quotas look at: resources, priority class and deadline."""
    resources = {"requests": {"cpu": pod.cpu, "memory": pod.memory}, "limits": {"memory": pod.memory_limit}}
    return {
        "spec": {
            "containers": [{"resources": resources}],
            "priorityClassName": patch.get("priorityClassName"),
            **({"activeDeadlineSeconds": pod.deadline_s} if pod.deadline_s else {}),
        }
    }
