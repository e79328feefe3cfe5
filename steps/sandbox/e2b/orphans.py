"""Orphaned sandboxes at E2B."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.sandbox.e2b.routes import list_sandboxes
from swe_argo.steps.sandbox.e2b.service import kill_sandbox
from swe_argo.steps.sandbox.envd.orphans import ProviderSandboxes
from swe_argo.steps.sandbox.orphans import Orphans


def e2b_sandboxes() -> ProviderSandboxes:
    """Return our sandboxes at the configured service."""
    return ProviderSandboxes("e2b", "E2B", _list_with_metadata, kill_sandbox)


def list_orphans(spec: SandboxSpec) -> Orphans:
    """List the orphans, see ``ProviderSandboxes``."""
    return e2b_sandboxes().list_orphans(spec)


def list_run(run_id: str, store_id: str | None = None) -> Orphans:
    """List a run's sandboxes, see ``ProviderSandboxes``."""
    return e2b_sandboxes().list_run(run_id, store_id)


def _list_with_metadata(metadata: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, str]]]:
    for info in list_sandboxes(dict(metadata)):
        yield info.sandbox_id, info.metadata
