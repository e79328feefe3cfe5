from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.sandbox.local.backend import LocalBackend
from swe_argo.steps.sandbox.local.sandbox import LocalSandbox
from swe_argo.steps.sandbox.protocol import SandboxRequest
from tests.steps.agents.machine import Box, image


@pytest.fixture(scope="session")
def image_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository of the image, to copy."""
    folder = tmp_path_factory.mktemp("image") / "testbed"
    image(folder)
    return folder


def _box(repository: Path, images: Path, *, isolated: bool) -> Iterator[Box]:
    shutil.copytree(repository, images / "test__image" / "testbed")
    backend = LocalBackend(images, isolated=isolated)
    request = SandboxRequest(name="test", image="test/image", deadline_s=600, network=False, isolated=isolated)
    sandbox = backend.create(request)
    assert isinstance(sandbox, LocalSandbox)
    try:
        yield Box(sandbox, sandbox.root)
    finally:
        backend.destroy(sandbox)


@pytest.fixture
def box(image_repository: Path, tmp_path: Path) -> Iterator[Box]:
    """A sandbox on the plain host: repositories may refer to each other by the paths the test sees."""
    yield from _box(image_repository, tmp_path / "images", isolated=False)


@pytest.fixture(params=["host", "bubblewrap"])
def any_box(request: pytest.FixtureRequest, image_repository: Path, tmp_path: Path) -> Iterator[Box]:
    """A sandbox of either kind."""
    isolated = request.param == "bubblewrap"
    if isolated and (reason := bubblewrap.probe()):
        pytest.skip(reason)
    yield from _box(image_repository, tmp_path / "images", isolated=isolated)
