"""Snapshots of sandboxes at the service, stored as templates from which sandboxes start."""

from __future__ import annotations

from e2b import Sandbox

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError
from swe_argo.steps.sandbox.e2b.service import call_service, service_options
from swe_argo.steps.sandbox.envd.failures import GONE


def take_snapshot(sandbox_id: str, name: str) -> str:
    """Take a snapshot of a running sandbox; return its id.

    Raises InfraError if the service fails or has no snapshots, ConfigError without a valid key.
    """
    doing = f"taking a snapshot of sandbox {sandbox_id}"
    try:
        snapshot = call_service(
            lambda: Sandbox.create_snapshot(sandbox_id, name=name, **service_options()),
            FailureClass.SANDBOX_CREATE,
            doing,
        )
    except GONE as error:
        raise InfraError(
            FailureClass.SANDBOX_CREATE, f"{doing}: no such sandbox, or the service has no snapshots"
        ) from error
    return str(snapshot.snapshot_id)


def remove_snapshot(snapshot: str) -> None:
    """Remove a snapshot. Idempotent. Raises InfraError if the service fails, ConfigError without a valid key."""
    call_service(
        lambda: Sandbox.delete_snapshot(snapshot, **service_options()),
        FailureClass.SANDBOX_LOST,
        f"removing snapshot {snapshot}",
    )
