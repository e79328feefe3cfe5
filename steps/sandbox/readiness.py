"""The plan step's check that a backend can provide a run's sandboxes, made once before anything is written."""

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
    """Whether the agent runs commands of its own."""
    solves: bool
    """Whether there is an agent's sandbox besides the one for tests."""
    grading_network: bool
    timeout_s: float
    """The longest timeout of the tests, and of the agent if one solves."""
    machines: Mapping[str, TaskMachine] = field(default_factory=dict)
    """Image -> its task's requirements of the machine, if any."""
    bundle: BundleMount | None = None
    """The files of the agent program, if one solves that has some."""
    selection: str = ""
    """Command-line words that select these images, for use in a suggested command."""

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


def places_notice(most: int, where: str) -> list[str]:
    """Return a notice if more units may run in this namespace than the provider's account allows sandboxes."""
    units = settings().units
    if units is None or units <= most:
        return []
    return [
        f"{units:g} units run at a time in this namespace, but the account has room for {most} sandboxes at {where}: "
        f"the others are refused and tried again; helm upgrade ... --set limits.units={most}"
    ]


def ready(spec: SandboxSpec, sandbox_needs: SandboxNeeds) -> ReadinessResult:
    """Ask the spec's backend whether it is ready; a custom backend need not answer.

    Raises ConfigError if an engine or cluster, rights, a folder, room or isolation is missing.
    """
    ask = load_part(spec.backend, "readiness", "ready")
    return cast(ReadinessResult, ask(spec, sandbox_needs)) if ask else ReadinessResult()
