"""What a sandbox costs while it runs."""

from __future__ import annotations

from swe_argo.steps.contracts.sandbox_spec import E2BSpec
from swe_argo.steps.sandbox.e2b.templates import whole_cores

DEFAULT_CPUS = 2
DEFAULT_MEMORY_MB = 512
"""The service's own size, where none is asked for (https://e2b.dev/docs/faq/calculate-sandbox-price)."""


def hourly_price(spec: E2BSpec, cpus: float | None, memory_mb: int | None) -> float:
    """Dollars an hour of a sandbox of this size; those of a mapping file are taken to be as large as was asked for."""
    cores, memory = whole_cores(cpus) or DEFAULT_CPUS, memory_mb or DEFAULT_MEMORY_MB
    return cores * spec.vcpu_usd_per_hour + memory / 1024 * spec.gib_usd_per_hour
