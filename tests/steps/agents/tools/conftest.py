"""A machine of every kind that tests can have, with a small repository at /testbed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from swe_argo.steps.sandbox.docker.backend import DockerBackend
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.sandbox.local.backend import LocalBackend
from swe_argo.steps.sandbox.protocol import Backend, Sandbox, SandboxRequest
from tests.base_image import testbed_image as make_testbed_image
from tests.steps.agents.machine import image

KINDS = [
    "bubblewrap",
    # What is there where there are no namespaces: elsewhere its turn comes with the long tests.
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
def machine(kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """One machine for all tests of a module; ``tidy`` brings its repository back."""
    images = tmp_path_factory.mktemp("images")
    checkout = images / "test__image" / "testbed"
    image(checkout)
    backend: Backend = LocalBackend(images, isolated=kind == "bubblewrap")
    name = "test/image"
    if kind == "docker":
        client = request.getfixturevalue("docker_client")
        backend, name = DockerBackend(client.api), make_testbed_image(client, checkout)
    sandbox = backend.create(
        SandboxRequest(
            name=f"swe-argo-test-{time.monotonic_ns()}",
            image=name,
            deadline_s=600,
            network=False,
            labels={"run": "r", "instance": "i", "attempt": "1", "step": "solve"},
            isolated=kind == "bubblewrap",
        )
    )
    yield sandbox
    backend.destroy(sandbox)


@pytest.fixture
def tidy(machine: Sandbox) -> Sandbox:
    """The machine with its repository as it was committed."""
    machine.exec("git -c safe.directory=* reset -q --hard; git -c safe.directory=* clean -fdxq", timeout_s=60)
    return machine
