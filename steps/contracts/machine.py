"""Machine: the sandbox that a stage ran in, as its record tells it."""

from __future__ import annotations

from swe_argo.steps.contracts.data import WORKDIR
from swe_argo.steps.contracts.record import Part


class Machine(Part):
    """The sandbox a stage ran in."""

    backend: str
    image: str
    image_digest: str | None
    isolation: str
    """container, microvm, bubblewrap, or none."""
    network: bool
    cpus: float | None = None
    memory_mb: int | None = None
    resource_factor: float = 1.0
    workdir: str = WORKDIR
    """Where it has the repository, and commands begin."""
    usd_per_hour: float | None = None
    """What its provider takes while it runs; None where nobody does, or its price is not known."""
