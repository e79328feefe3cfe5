"""An agent's files as images of a registry on this machine, from which the node pulls."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from swe_argo.steps.bundles.build import architecture_here
from swe_argo.steps.bundles.image import push_image
from swe_argo.steps.bundles.stored import StoredBundle
from swe_argo.steps.contracts.recipe import BundleFacts
from swe_argo.steps.gateway.binary import find_gateway
from tests.registry import Registry, serve


@dataclass(frozen=True)
class AgentRegistry:
    """A registry, and a HOME in which skopeo is told that it has no TLS."""

    registry: Registry
    home: Path

    @property
    def address(self) -> str:
        return self.registry.address


@contextmanager
def agent_registry(home: Path) -> Iterator[AgentRegistry]:
    """A registry that skopeo takes without TLS, as containerd does at this address. Skips without skopeo."""
    if shutil.which("skopeo") is None:
        pytest.skip("skopeo is not installed")
    with serve() as registry:
        settings = home / ".config" / "containers" / "registries.conf"
        settings.parent.mkdir(parents=True)
        settings.write_text(f'[[registry]]\nlocation = "{registry.address}"\ninsecure = true\n')
        yield AgentRegistry(registry, home)


def push(to: AgentRegistry, name: str, files: Path, digest: str, copier: bytes | None = None) -> str:
    """The image with these files, and the program that copies them, by its digest."""
    architecture = architecture_here()
    bundle = StoredBundle(name, "1", files, BundleFacts(digest=digest, architecture=architecture, libc="any"))
    program = copier or find_gateway(architecture)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(to.home))
        return push_image(bundle, f"{to.address}/{name}", program)
