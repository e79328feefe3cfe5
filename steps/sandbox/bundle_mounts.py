"""The files of an agent program, as a backend gets at them."""

from __future__ import annotations

from pathlib import Path

from steps.bundles.stored import find_bundle
from steps.contracts.recipe import AgentProgram
from steps.errors import ConfigError
from steps.sandbox.protocol import BundleMount, SandboxRequest


def mount_of(program: AgentProgram | None) -> BundleMount | None:
    """What is to be mounted for an agent program; None where it has no files of its own."""
    if program is None or program.bundle is None:
        return None
    stored = find_bundle(program.bundle.digest)
    return BundleMount(program.bundle.digest, stored.files if stored else None, program.bundle.image)


def folder_of(request: SandboxRequest) -> Path | None:
    """The folder to be mounted. Raises ConfigError where the run has files that this machine has not."""
    if request.bundle is None:
        return None
    if request.bundle.folder is None:
        raise ConfigError(
            f"this machine has no agent files {request.bundle.digest}: swe-argo agents build makes them",
            field="agent.name",
        )
    return request.bundle.folder
