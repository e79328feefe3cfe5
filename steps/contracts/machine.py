"""Machine: a sandbox in a record."""

from __future__ import annotations

from swe_argo.steps.contracts.data import WORKDIR
from swe_argo.steps.contracts.record import Part


class Machine(Part):
    """The sandbox in which a stage ran."""

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
    """Folder of the repository, in which commands run."""
    usd_per_hour: float | None = None
    """The provider's price while it runs; None if it is free or unknown."""
