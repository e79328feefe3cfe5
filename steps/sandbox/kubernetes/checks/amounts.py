"""Resource amounts of pods, for comparison with nodes and quotas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

from kubernetes.utils.quantity import parse_quantity

from swe_argo.steps.kube.requests import Plain

Amount = Mapping[str, Decimal]
"""Amounts by resource: cpu in cores, memory and ephemeral-storage in bytes, others by count."""

KINDS = ("cpu", "memory", "ephemeral-storage")
"""The resources that a sandbox requests."""


def amounts(quantities: Mapping[str, str] | None) -> dict[str, Decimal]:
    """Return Kubernetes' quantities as numbers."""
    return {name: parse_quantity(text) for name, text in (quantities or {}).items()}


def pod_amounts(pod: Plain, which: str) -> dict[str, Decimal]:
    """Return the sum of all containers' ``which``: requests or limits, plus the runtime class's overhead.

    A container with only a limit requests as much (as the API server would fill in).
    """
    total = amounts(pod["spec"].get("overhead"))
    for container in pod["spec"].get("containers") or []:
        resources = container.get("resources") or {}
        own_amounts = amounts(resources.get("limits"))
        if which == "requests":
            own_amounts |= amounts(resources.get("requests"))
        for name, amount in own_amounts.items():
            total[name] = total.get(name, Decimal(0)) + amount
    return total


def format_amounts(amount: Amount, only: Iterable[str] = KINDS) -> str:
    """Format the amounts of the resources ``only`` like ``2 cpu, 7.5Gi memory``."""
    return ", ".join(f"{format_amount(name, amount[name])} {name}" for name in only if name in amount)


def format_amount(name: str, amount: Decimal) -> str:
    """Format one amount for a person."""
    if name.rpartition(".")[2] == "cpu":
        return f"{int(amount * 1000)}m" if amount % 1 else str(int(amount))
    for unit, size in (("Gi", 2**30), ("Mi", 2**20)):
        if amount >= size:
            return f"{_number(amount / size)}{unit}"
    return _number(amount)


def _number(amount: Decimal) -> str:
    return f"{amount:.1f}".removesuffix(".0")
