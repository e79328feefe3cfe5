"""A sandbox of every kind that this machine supports, with a small repository at /testbed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.sandbox.docker.backend import DockerBackend
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.sandbox.local.backend import LocalBackend
from swe_argo.steps.sandbox.protocol import Backend, Sandbox, SandboxRequest
from tests.base_image import testbed_image as make_testbed_image

KINDS = [
    "bubblewrap",
    # used where there are no namespaces; elsewhere one of the long tests
    pytest.param("host", marks=[] if bubblewrap.probe() else pytest.mark.long),
    pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.long]),
]


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if name == "bubblewrap" and (reason := bubblewrap.probe()):
        pytest.skip(reason)
    return name


@pytest.fixture(scope="module")
def machine(
    kind: str, request: pytest.FixtureRequest, image_repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sandbox]:
    """A sandbox for all tests of a module; ``tidy`` restores its repository."""
    images = tmp_path_factory.mktemp("images")
    checkout = shutil.copytree(image_repository, images / "test__image" / "testbed")
    backend: Backend = LocalBackend(images, isolated=kind == "bubblewrap")
    name = "test/image"
    if kind == "docker":
        client = request.getfixturevalue("docker_client")
        backend, name = DockerBackend(client.api), make_testbed_image(client, checkout)
    labels = {"run": "r", "instance": "i", "attempt": "1", "step": "solve"}
    options: dict[str, Any] = {"deadline_s": 600, "network": False, "labels": labels, "isolated": kind == "bubblewrap"}
    sandbox = backend.create(SandboxRequest(name=f"swe-argo-test-{time.monotonic_ns()}", image=name, **options))
    yield sandbox
    backend.destroy(sandbox)


@pytest.fixture
def tidy(machine: Sandbox) -> Sandbox:
    """The sandbox with its repository as it was committed."""
    machine.exec("git -c safe.directory=* reset -q --hard; git -c safe.directory=* clean -fdxq", timeout_s=60)
    return machine
