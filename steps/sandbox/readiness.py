"""Whether a backend can give a run its sandboxes: asked once by plan, before anything is written."""

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
    """What the sandboxes of a run must be able to do."""

    images: list[str]
    acts: bool
    """The agent runs commands of its own."""
    solves: bool
    """There is an agent's sandbox, beside the one that tests run in."""
    grading_network: bool
    timeout_s: float
    """The longest that agent, where one solves, or tests may take."""
    machines: Mapping[str, TaskMachine] = field(default_factory=dict)
    """Image -> what its task says of the machine, where it says anything."""
    bundle: BundleMount | None = None
    """The files of the agent program, where one solves that has some."""
    selection: str = ""
    """Words of a command line that choose these images, for a command that is proposed."""

    def machine_of(self, image: str) -> TaskMachine:
        """What its task says."""
        return self.machines.get(image, TaskMachine())


@dataclass(frozen=True)
class ReadinessResult:
    """What a person should know of the machines, and the digests of those images that are here already."""

    notices: list[str] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    usd_per_hour: float | None = None
    """What a sandbox costs while it runs, on average over the images; None where nobody takes money for it."""


def places_notice(most: int, where: str) -> list[str]:
    """That more units may run at a time in this namespace than the account of a provider may have sandboxes."""
    units = settings().units
    if units is None or units <= most:
        return []
    return [
        f"{units:g} units run at a time in this namespace, but the account has room for {most} sandboxes at {where}: "
        f"the others are refused and tried again; helm upgrade ... --set limits.units={most}"
    ]


def ready(spec: SandboxSpec, sandbox_needs: SandboxNeeds) -> ReadinessResult:
    """Ask the spec's backend. Raises ConfigError: no engine or cluster, no rights, no folder, no room, no isolation.

    One's own may have nothing to say to it.
    """
    ask = load_part(spec.backend, "readiness", "ready")
    return cast(ReadinessResult, ask(spec, sandbox_needs)) if ask else ReadinessResult()
