"""The price of a running sandbox."""

from __future__ import annotations

from swe_argo.steps.contracts.sandbox_spec import E2BSpec
from swe_argo.steps.sandbox.e2b.templates import whole_cores

DEFAULT_CPUS = 2
DEFAULT_MEMORY_MB = 512
"""The service's default size (https://e2b.dev/docs/faq/calculate-sandbox-price)."""


def hourly_price(spec: E2BSpec, cpus: float | None, memory_mb: int | None) -> float:
    """Return the dollars per hour of a sandbox of this size (None: the default).

    The templates of a mapping file are assumed to have it.
    """
    cores, memory = whole_cores(cpus) or DEFAULT_CPUS, memory_mb or DEFAULT_MEMORY_MB
    return cores * spec.vcpu_usd_per_hour + memory / 1024 * spec.gib_usd_per_hour
