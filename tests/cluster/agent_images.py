"""An agent's files as images of a registry on this machine, from which the node pulls."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from steps.agents.gate.binary import find_gate
from steps.bundles.build import architecture_here
from steps.bundles.image import push_image
from steps.bundles.stored import StoredBundle
from steps.contracts.recipe import BundleFacts
from tests.registry import Registry, serve


@contextmanager
def agent_registry(folder: Path) -> Iterator[Registry]:
    """A registry that skopeo takes without TLS, as containerd does at this address. Skips without skopeo."""
    if shutil.which("skopeo") is None:
        pytest.skip("skopeo is not installed")
    with serve() as registry, pytest.MonkeyPatch.context() as patch:
        settings = folder / "registries.conf"
        settings.write_text(f'[[registry]]\nlocation = "{registry.address}"\ninsecure = true\n')
        patch.setenv("CONTAINERS_REGISTRIES_CONF", str(settings))
        yield registry


def push(registry: Registry, name: str, files: Path, digest: str, copier: bytes | None = None) -> str:
    """The image with these files, and the program that copies them, by its digest."""
    architecture = architecture_here()
    bundle = StoredBundle(name, "1", files, BundleFacts(digest=digest, architecture=architecture, libc="any"))
    return push_image(bundle, f"{registry.address}/{name}", copier or find_gate(architecture))
