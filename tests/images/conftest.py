"""The images, built by each builder on a base made of this machine's packages, in the Docker engine of the tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.debian import PACKAGES, PYTHON, NoDebianError, root_archive
from tests.images import index
from tests.images.script import images_build
from tests.paths import ROOT
from tests.registry import Registry
from tests.registry import serve as serve_registry

if TYPE_CHECKING:
    from docker import DockerClient

BUILDERS = ("docker", "buildah")
LOCKS = ROOT / "images"
DEBIAN = "localhost/swe-argo-test-debian:1"
SLIM = "localhost/swe-argo-test-python:1"
"""Python and nothing else, as python:3.13-slim: what the size is counted with."""
BASES = {DEBIAN: PACKAGES, SLIM: PYTHON}


@dataclass
class Shop:
    """A builder: what ``images/build`` must be told, what it has built, and where it pushes."""

    name: str
    environment: dict[str, str]
    scratch: Path
    client: DockerClient
    pushed: Registry
    outputs: dict[str, str] = field(default_factory=dict)
    """The output of the builds by image name."""

    def build(self, word: str, **environment: str) -> str:
        """The name of the image that ``word`` is for, built and in the Docker engine."""
        name = self.names(word)[-1]
        if name not in self.outputs:
            self.outputs[name] = self.run("build", word, **environment)
            if self.name == "buildah":
                self._into_docker(word)
        return name

    def run(self, *words: str, **environment: str) -> str:
        """What ``images/build WORDS`` said."""
        result = images_build(*words, **(self.environment | environment))
        assert result.returncode == 0, result.stdout[-3000:]
        return result.stdout

    def names(self, word: str) -> list[str]:
        return self.run("names", word).split()

    def inside(self, image: str, *command: str, volumes: dict[str, str] | None = None, **more: Any) -> str:
        """What a command prints in a container as the cluster runs it: any user, read-only root, no network.

        ``more``: options of the container that are to differ.
        """
        options: dict[str, Any] = {
            "user": "1234567:0",
            "read_only": True,
            "tmpfs": {"/tmp": "mode=1777"},
            "network_mode": "none",
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "volumes": {host: {"bind": to, "mode": "rw"} for host, to in (volumes or {}).items()},
        } | more
        return cast(bytes, self.client.containers.run(image, list(command), remove=True, **options)).decode()

    def _into_docker(self, word: str) -> None:
        folder = self.scratch / "archives"
        archives = self.run("save", str(folder), word).split()
        for archive in archives:
            with Path(archive).open("rb") as data:
                self.client.images.load(data)
            Path(archive).unlink()


@pytest.fixture(scope="session")
def debian(docker_client: DockerClient) -> str:
    """The base images, in the Docker engine; skips with the reason where they cannot be made."""
    from docker.errors import ImageNotFound

    for name, packages in BASES.items():
        try:
            archive = root_archive(packages)
        except NoDebianError as reason:
            pytest.skip(f"no base image: {reason}")
        try:
            docker_client.images.get(name)
        except ImageNotFound:
            repository, tag = name.split(":")
            docker_client.api.import_image(str(archive), repository=repository, tag=tag)
    return DEBIAN


@pytest.fixture(
    scope="session", params=[pytest.param(name, marks=pytest.mark.xdist_group(f"images-{name}")) for name in BUILDERS]
)
def shop(
    request: pytest.FixtureRequest, docker_client: DockerClient, debian: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    """Each builder that this machine has."""
    if not shutil.which(request.param):
        pytest.skip(f"the {request.param} command is not installed")
    scratch = tmp_path_factory.mktemp(request.param)
    specs = {"BUILDER": request.param, "IMAGE_REGISTRY": f"images.test/{request.param}", "BASE": debian}
    with ExitStack() as stack:
        pushed = stack.enter_context(serve_registry())
        if request.param == "docker":
            specs["DOCKER_HOST"] = _address(docker_client)
        else:
            specs |= stack.enter_context(buildah(scratch, pushed.address))
        yield Shop(request.param, specs, scratch, docker_client, pushed)


@pytest.fixture(scope="session")
def packages(shop: Shop) -> Iterator[index.Index]:
    """The packages of all images, at an index that asks for a password: one for all builds, which so share layers."""
    python = shop.inside(DEBIAN, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    try:
        folders = [index.wheels(LOCKS / f"{name}.lock", python) for name in ("steps", "training")]
    except index.NoWheelsError as reason:
        pytest.skip(str(reason))
    with index.serve(*folders) as package_index:
        yield package_index


@pytest.fixture(scope="session")
def steps_image(shop: Shop, packages: index.Index) -> str:
    """The image of the steps."""
    name = shop.build("steps", BUILD_NETWORK="host", PIP_INDEX_URL=packages.url)
    assert packages.fetched, "nothing was fetched from the index that was named"
    return name


@pytest.fixture(scope="session")
def training_image(shop: Shop, packages: index.Index, steps_image: str) -> str:
    """That of training, on the image of the steps."""
    return shop.build("training", BUILD_NETWORK="host", PIP_INDEX_URL=packages.url)


def _address(client: DockerClient) -> str:
    adapter = getattr(client.api, "_custom_adapter", None)
    return f"unix://{adapter.socket_path}" if adapter else re.sub("^http", "tcp", client.api.base_url)


@contextmanager
def buildah(scratch: Path, registry: str, bases: Collection[str] = tuple(BASES)) -> Iterator[dict[str, str]]:
    """What keeps buildah to ``scratch``, with these base images there."""
    storage, registries = scratch / "storage.conf", scratch / "registries.conf"
    storage.write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{scratch}/graph"\nrunroot = "{scratch}/run"\n')
    registries.write_text(f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n')
    specs = {
        "CONTAINERS_STORAGE_CONF": str(storage),
        "CONTAINERS_REGISTRIES_CONF": str(registries),
        "BUILDAH_ISOLATION": "chroot",
    }
    environment = os.environ | specs

    def run(*words: str) -> str:
        result = subprocess.run(["buildah", *words], env=environment, capture_output=True, text=True, check=False)
        if result.returncode:
            pytest.skip(f"buildah does not work here: `buildah {words[0]}`: {result.stderr.strip()[-200:]}")
        return result.stdout.strip()

    for name in bases:
        container = run("from", "scratch")
        run("add", container, str(root_archive(BASES[name])), "/")
        run("commit", "--quiet", "--rm", container, name)
    yield specs
    subprocess.run(["umount", str(scratch / "graph" / "overlay")], check=False, capture_output=True)
    shutil.rmtree(scratch / "graph", ignore_errors=True)
