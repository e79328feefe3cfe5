"""Sandboxes at AGS that somebody of ours left behind."""

from __future__ import annotations

from steps.contracts.sandbox_spec import SandboxSpec
from steps.sandbox.ags.control import stop
from steps.sandbox.ags.instances import list_instances
from steps.sandbox.ags.service import place
from steps.sandbox.envd.orphans import ProviderSandboxes
from steps.sandbox.orphans import Orphans


def ags_sandboxes() -> ProviderSandboxes:
    """Ours in the region that the environment names."""
    return ProviderSandboxes("ags", place(), list_instances, stop)


def list_orphans(spec: SandboxSpec) -> Orphans:
    """See ``ProviderSandboxes``."""
    return ags_sandboxes().list_orphans(spec)


def list_run(run_id: str, store_id: str | None = None) -> Orphans:
    """See ``ProviderSandboxes``."""
    return ags_sandboxes().list_run(run_id, store_id)
