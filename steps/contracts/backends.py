"""The sandbox backends as values, with their packages, which are imported on first use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeGuard

MiniImages = Literal["folders", "containers"]
"""The form of the bundled dataset's images for a backend."""


@dataclass(frozen=True)
class SandboxBackend:
    """A backend's properties that are needed before it is connected."""

    name: str
    package: str
    """Package with ``backend.connect(spec)`` and optional modules: readiness, hooks, diagnosis, orphans
    (docs/add-a-backend.md). For a user's own backend ``module:connect``."""
    on_cluster: bool = False
    """Whether its sandboxes run on a cluster, within the limits of a namespace, and not on this machine."""
    keys: tuple[str, ...] = ()
    """Environment variables with the account's keys, for the backend of a provider: sandboxes can be created with them
    from this machine and from pods."""
    mini_images: MiniImages | None = None
    mounts_bundles: bool = False
    """Whether it mounts the files of an agent program (SandboxRequest.bundle); else they are uploaded to each sandbox
    whose template lacks them."""
    snapshots: bool = False
    """Whether it creates sandboxes from snapshots (swe_argo.steps.sandbox.protocol.Snapshots)."""

    @property
    def serves_pods(self) -> bool:
        """Whether a step's pod can create its sandboxes, and not only this machine."""
        return self.on_cluster or bool(self.keys)


_TABLE = (
    SandboxBackend("local", "swe_argo.steps.sandbox.local", mini_images="folders", mounts_bundles=True),
    SandboxBackend("docker", "swe_argo.steps.sandbox.docker", mini_images="containers", mounts_bundles=True),
    SandboxBackend("kubernetes", "swe_argo.steps.sandbox.kubernetes", on_cluster=True, mounts_bundles=True),
    SandboxBackend("e2b", "swe_argo.steps.sandbox.e2b", keys=("E2B_API_KEY",), snapshots=True),
    SandboxBackend(
        "ags", "swe_argo.steps.sandbox.ags", keys=("TENCENTCLOUD_SECRET_ID", "TENCENTCLOUD_SECRET_KEY"), snapshots=True
    ),
)
BACKENDS: Mapping[str, SandboxBackend] = MappingProxyType({backend.name: backend for backend in _TABLE})
"""Name -> backend."""


def is_own_backend(name: object) -> TypeGuard[str]:
    """Whether it names a user's own backend: ``package.module:connect`` or ``path/to/file.py:connect``."""
    return isinstance(name, str) and ":" in name


def find_backend(name: str) -> SandboxBackend:
    """Return one of our backends, or a user's own."""
    return BACKENDS.get(name) or SandboxBackend(name, name)
