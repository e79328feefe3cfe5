"""Lookup of an agent program's files for a backend."""

from __future__ import annotations

from pathlib import Path

from swe_argo.steps.bundles.stored import find_bundle
from swe_argo.steps.contracts.recipe import AgentProgram
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.protocol import BundleMount


def find_mount(program: AgentProgram | None) -> BundleMount | None:
    """Return the bundle to mount for an agent program; None without a program, or if it needs no files."""
    if program is None or program.bundle is None:
        return None
    stored = find_bundle(program.bundle.digest)
    return BundleMount(program.bundle.digest, stored.files if stored else None, program.bundle.image)


def bundle_folder(bundle: BundleMount) -> Path:
    """Return the folder of a bundle's files. Raises ConfigError if this machine does not have them."""
    if bundle.folder is None:
        raise ConfigError(
            f"this machine has no agent files {bundle.digest}: run swe-argo agents build", field="agent.name"
        )
    return bundle.folder
