"""Images for backend docker, on a real engine."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from docker.errors import ImageNotFound

from swe_argo.steps.datasets.mini import build, digest
from swe_argo.steps.datasets.mini.containers import LABEL
from swe_argo.steps.errors import StepError

if TYPE_CHECKING:
    from docker import DockerClient

pytestmark = pytest.mark.docker

ONE = "mini__ledgerlet-2"


@pytest.fixture
def base(docker_client: DockerClient) -> str:
    """A base image that has git, patch and python3 with pytest: nothing is downloaded."""
    from tests.base_image import base_image

    return base_image(docker_client)


@pytest.fixture
def name(docker_client: DockerClient) -> Iterator[str]:
    """Of an image that no other test makes: all of them have one engine."""
    name = f"swe-argo-test-mini:{time.monotonic_ns()}"
    yield name
    with contextlib.suppress(ImageNotFound):
        docker_client.images.remove(name, force=True)


def test_mini_image_is_built_once(docker_client: DockerClient, base: str, name: str) -> None:
    build(docker_client, {ONE: name}, base)
    image = docker_client.images.get(name)
    assert image.labels[LABEL] == digest(ONE)
    build(docker_client, {ONE: name}, "base.invalid/is-not-needed:1")
    assert docker_client.images.get(name).id == image.id
    command = (
        "git -C /testbed status --porcelain && cd /testbed && python -m unittest 2>&1 && python -c 'import pytest'"
    )
    printed = docker_client.containers.run(
        image, ["bash", "-c", f"git config --global --add safe.directory /testbed; {command}"], remove=True
    )
    assert printed.decode().strip().endswith("OK (skipped=1)")


@pytest.mark.long
def test_outdated_mini_image_is_rebuilt(docker_client: DockerClient, base: str, name: str) -> None:
    build(docker_client, {ONE: name}, base)
    recipe = f"FROM {name}\nLABEL {LABEL}=sha256:old\n"
    docker_client.images.build(fileobj=io.BytesIO(recipe.encode()), tag=name, rm=True)
    build(docker_client, {ONE: name}, base)
    assert docker_client.images.get(name).labels[LABEL] == digest(ONE)


def test_missing_mini_base_is_named(docker_client: DockerClient, name: str) -> None:
    with pytest.raises(StepError, match=r"building the image of mini__ledgerlet-2 on registry\.invalid/no:1"):
        build(docker_client, {ONE: name}, "registry.invalid/no:1")
