"""Orphaned containers of swe-argo."""

from __future__ import annotations

import time
from collections.abc import Iterable

from docker import APIClient
from docker.errors import APIError, NotFound

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.host.folders import is_dead
from swe_argo.steps.sandbox.docker.engine import (
    EngineRetries,
    call_engine,
    connect_engine,
    engine_failure,
    engine_message,
)
from swe_argo.steps.sandbox.orphans import Orphans, list_remaining

LABEL = "swe-argo"
"""Label of our containers; also the prefix of their other labels."""
KIND = "sandbox"
"""Its value for sandboxes."""


def list_orphans(_spec: SandboxSpec) -> Orphans:
    """List the engine's orphans; return none without an engine."""
    try:
        names = find_orphans()
    except (ConfigError, InfraError):
        return Orphans()
    return Orphans(names, lambda: list_remaining(names, clean(names)))


def find_orphans(api: APIClient | None = None) -> list[str]:
    """Return the names of our containers whose deadline passed or whose owner, on this machine, is dead.

    Raises ConfigError if there is no engine, InfraError if it does not answer.
    """
    api = api or connect_engine().api
    filters = {"label": f"{LABEL}={KIND}"}
    containers = call_engine(
        lambda: api.containers(all=True, filters=filters),
        EngineRetries(),
        FailureClass.SANDBOX_LOST,
        "listing containers",
    )
    return sorted(
        str(c["Names"][0]).lstrip("/") for c in containers if c.get("Names") and _is_orphaned(c.get("Labels") or {})
    )


def clean(names: Iterable[str], api: APIClient | None = None) -> list[str]:
    """Remove our containers among ``names``; return the names that no longer exist.

    Raises InfraError if the engine fails.
    """
    api = api or connect_engine().api
    removed = []
    for name in names:
        try:
            labels = api.inspect_container(name)["Config"].get("Labels") or {}
        except NotFound:
            labels = {LABEL: KIND}  # it is gone, so it counts as removed
        if labels.get(LABEL) == KIND:
            remove(api, name, EngineRetries())
            removed.append(name)
    return removed


def remove(api: APIClient, container: str, patience: EngineRetries) -> None:
    """Remove a container with its processes and volumes, unless already removed. Raises InfraError if that fails."""
    doing = f"removing container {container}"
    try:
        call_engine(
            lambda: api.remove_container(container, force=True, v=True), patience, FailureClass.SANDBOX_LOST, doing
        )
    except NotFound:
        return
    except APIError as error:
        if error.status_code != 409 or "already in progress" not in engine_message(error):
            raise engine_failure(error, FailureClass.SANDBOX_LOST, doing) from error


def _is_orphaned(labels: dict[str, str]) -> bool:
    """Return whether a container's labels say that its deadline has passed or its owner on this machine is dead."""
    deadline = labels.get(f"{LABEL}/deadline", "")
    if deadline.isdigit() and int(deadline) < time.time():
        return True
    return is_dead(labels.get(f"{LABEL}/owner", ""))
