"""The plan step's check that a backend can provide a run's sandboxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from swe_argo.steps.contracts.data import TaskMachine
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.sandbox import load_part
from swe_argo.steps.sandbox.protocol import BundleMount
from swe_argo.steps.settings import settings


@dataclass(frozen=True)
class SandboxNeeds:
    """The requirements of a run's sandboxes."""

    images: list[str]
    acts: bool
    """Whether the agent runs commands."""
    solves: bool
    """Whether agents have sandboxes, besides those for tests."""
    grading_network: bool
    timeout_s: float
    """The longest timeout of tests or agent."""
    machines: Mapping[str, TaskMachine] = field(default_factory=dict)
    """Image -> its task's machine requirements, if any."""
    bundle: BundleMount | None = None
    """The files of the agent program, if any."""
    selection: str = ""
    """Command-line arguments that select these images, for suggested commands."""

    def machine_of(self, image: str) -> TaskMachine:
        """Return the requirements of the image's task."""
        return self.machines.get(image, TaskMachine())


@dataclass(frozen=True)
class ReadinessResult:
    """Notices for the user, and the digests of images already present."""

    notices: list[str] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    usd_per_hour: float | None = None
    """Average price of a running sandbox over the images; None if it costs nothing."""


def unit_limit_notice(most: int, where: str) -> list[str]:
    """Return a notice if more units may run at a time in this namespace than the provider allows sandboxes.

    ``most``: the account's maximum; ``where``: the provider for the message. No notice outside a namespace.
    """
    units = settings().units
    if units is None or units <= most:
        return []
    return [
        f"{units:g} units run at a time in this namespace, but {where} allows the account {most} sandboxes: "
        f"further units are refused and retried; helm upgrade ... --set limits.units={most}"
    ]


def ready(spec: SandboxSpec, sandbox_needs: SandboxNeeds) -> ReadinessResult:
    """Check that the spec's backend is ready; a custom backend may lack this check.

    Raises ConfigError if an engine, a cluster, rights, a folder, disk space or isolation is missing.
    """
    check = load_part(spec.backend, "readiness", "ready")
    return cast(ReadinessResult, check(spec, sandbox_needs)) if check else ReadinessResult()
