"""Private folders on this machine whose owner is dead."""

from __future__ import annotations

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.host import folders
from swe_argo.steps.sandbox.orphans import Orphans


def list_orphans(_spec: SandboxSpec) -> Orphans:
    """List the folders of dead owners. Raises OSError if the temporary folder cannot be read."""
    orphaned = folders.find_orphans()
    return Orphans(
        [str(folder) for folder in orphaned],
        lambda: {str(folder): reason for folder, reason in folders.remove_with_processes(orphaned).items()},
    )
