"""The backends as values: where their sandboxes are, and the package that makes them, imported late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeGuard

MiniImages = Literal["folders", "containers"]
"""In what form the images of the bundled dataset can be made for a backend."""


@dataclass(frozen=True)
class SandboxBackend:
    """What the rest of the project must know of a backend before it is connected."""

    name: str
    package: str
    """The package with ``backend.connect(spec)``, and what else it offers in modules of these names: readiness, care,
    diagnosis, orphans (docs/add-a-backend.md). ``module:connect`` of one's own."""
    on_cluster: bool = False
    """Whether its sandboxes run on the machines of a cluster, within the limits of a namespace, and not on this one."""
    keys: tuple[str, ...] = ()
    """Of a provider's backend: the variables of the environment that hold the account's keys. Its sandboxes are at the
    provider, and whoever has these can make them, from this machine or from a pod."""
    mini_images: MiniImages | None = None
    mounts_bundles: bool = False
    """Whether it mounts the files of an agent program (SandboxRequest.bundle); else they are brought into each sandbox
    by the sandbox's own means, unless what it was made from has them."""
    snapshots: bool = False
    """Whether it makes sandboxes from the state of another (swe_argo.steps.sandbox.protocol.Snapshots)."""

    @property
    def serves_pods(self) -> bool:
        """Whether the pod of a step can make its sandboxes, and not only this machine."""
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
    """Whether it names a backend of one's own: ``package.module:connect`` or ``path/to/file.py:connect``."""
    return isinstance(name, str) and ":" in name


def backend_named(name: str) -> SandboxBackend:
    """Of ours, or one's own."""
    return BACKENDS.get(name) or SandboxBackend(name, name)
