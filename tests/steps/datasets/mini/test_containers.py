"""Images for backend docker, on a real engine."""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING

import pytest
from docker.errors import ImageNotFound

from steps.contracts.images import swebench_image
from steps.datasets.mini import build, digest
from steps.datasets.mini.containers import LABEL
from steps.errors import StepError

if TYPE_CHECKING:
    from docker import DockerClient

pytestmark = pytest.mark.docker

ONE = "mini__ledgerlet-2"


@pytest.fixture
def base(docker_client: DockerClient) -> str:
    """A base image that has git, patch and python3 with pytest: nothing is downloaded."""
    from tests.base_image import base_image

    return base_image(docker_client)


def test_an_image_is_built_once_and_holds_the_repository(docker_client: DockerClient, base: str) -> None:
    build(docker_client, {ONE: swebench_image(ONE)}, base)
    image = docker_client.images.get(swebench_image(ONE))
    assert image.labels[LABEL] == digest(ONE)
    build(docker_client, {ONE: swebench_image(ONE)}, "base.invalid/is-not-needed:1")
    assert docker_client.images.get(swebench_image(ONE)).id == image.id
    command = (
        "git -C /testbed status --porcelain && cd /testbed && python -m unittest 2>&1 && python -c 'import pytest'"
    )
    printed = docker_client.containers.run(
        image, ["bash", "-c", f"git config --global --add safe.directory /testbed; {command}"], remove=True
    )
    assert printed.decode().strip().endswith("OK (skipped=1)")


def test_an_image_of_other_content_is_built_again(docker_client: DockerClient, base: str) -> None:
    build(docker_client, {ONE: swebench_image(ONE)}, base)
    recipe = f"FROM {swebench_image(ONE)}\nLABEL {LABEL}=sha256:old\n"
    docker_client.images.build(fileobj=io.BytesIO(recipe.encode()), tag=swebench_image(ONE), rm=True)
    build(docker_client, {ONE: swebench_image(ONE)}, base)
    assert docker_client.images.get(swebench_image(ONE)).labels[LABEL] == digest(ONE)


def test_a_base_that_cannot_be_had_is_named(docker_client: DockerClient) -> None:
    name = "mini__slotbook-1"
    with contextlib.suppress(ImageNotFound):
        docker_client.images.remove(swebench_image(name), force=True)
    with pytest.raises(StepError, match=r"building the image of mini__slotbook-1 on registry\.invalid/no:1"):
        build(docker_client, {name: swebench_image(name)}, "registry.invalid/no:1")
