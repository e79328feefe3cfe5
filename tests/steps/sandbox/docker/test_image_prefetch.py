"""Pulls by a real Docker engine from a registry that also fails, and the images a run keeps."""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Callable, Iterator

import pytest
from docker import DockerClient

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.sandbox_spec import DockerSpec, SandboxSpec
from swe_argo.steps.errors import ConfigError, InfraError, ResourceError
from swe_argo.steps.sandbox.docker.backend import DockerBackend
from swe_argo.steps.sandbox.docker.engine import EngineRetries
from swe_argo.steps.sandbox.docker.images import GIB, ImagePrefetch, check_disk, local_image, pull_failure
from swe_argo.steps.sandbox.protocol import SandboxRequest
from tests.base_image import smallest_layer
from tests.registry import Registry, serve

QUICK = EngineRetries(attempts=3, first_s=0.01, longest_s=0.05)

REQUESTS_OF_ONE_PULL = 2


@pytest.fixture
def registry(docker_client: DockerClient) -> Iterator[Registry]:
    if docker_client.info()["Name"] != platform.node():
        pytest.skip("the Docker engine is not on this machine: it does not reach a registry here")
    with serve() as registry:
        yield registry
        # The engine's plain list: the client's looks at each image in turn, and fails when another test removes one.
        for image in docker_client.api.images():
            for name in image["RepoTags"] or []:
                if name.startswith(registry.address):
                    docker_client.images.remove(name, force=True)


@pytest.fixture
def backend(docker_client: DockerClient) -> DockerBackend:
    return DockerBackend(docker_client.api, patience=QUICK, pull_patience=QUICK)


def request(image: str, registry: Registry) -> SandboxRequest:
    name = f"swe-argo-test-pull-{time.monotonic_ns()}"
    return SandboxRequest(name, image, deadline_s=60, network=False, registry=f"{registry.address}/hub")


@pytest.mark.docker
def test_image_comes_from_the_registry(backend: DockerBackend, registry: Registry) -> None:
    digest = registry.add("hub/swebench/tiny", smallest_layer("it is me"))
    box = backend.create(request("docker.io/swebench/tiny:latest", registry))
    try:
        assert box.exec("cat /marker", timeout_s=60).stdout == b"it is me"
        assert box.machine.image == f"{registry.address}/hub/swebench/tiny:latest"
        assert box.machine.image_digest == digest
    finally:
        backend.destroy(box)


@pytest.mark.docker
def test_missing_or_denied_image_is_refused(backend: DockerBackend, registry: Registry) -> None:
    absent = f"{registry.address}/hub/swebench/no-such:latest does not exist at {registry.address}"
    with pytest.raises(ConfigError, match=absent) as caught:
        backend.create(request("swebench/no-such:latest", registry))
    assert caught.value.failure_class is FailureClass.IMAGE_MISSING
    assert len(registry.requests) <= REQUESTS_OF_ONE_PULL
    registry.failures = [(401, "UNAUTHORIZED", "authentication required")] * 9
    with pytest.raises(ConfigError, match="docker login") as caught:
        backend.create(request("swebench/tiny:latest", registry))
    assert caught.value.failure_class is FailureClass.IMAGE_MISSING


@pytest.mark.docker
def test_pull_is_retried_after_an_error(backend: DockerBackend, registry: Registry) -> None:
    registry.add("hub/swebench/tiny", smallest_layer("recovered"))
    registry.failures = [(500, "UNKNOWN", "it is a bad day"), (429, "TOOMANYREQUESTS", "rate limit")]
    backend.destroy(backend.create(request("swebench/tiny:latest", registry)))
    assert registry.failures == []


@pytest.mark.docker
def test_broken_registry_is_infra_error(backend: DockerBackend, registry: Registry) -> None:
    registry.failures = [(500, "UNKNOWN", "it is a bad day")] * 99
    for place, expected in ((registry, "500 Internal Server Error"), (Registry("127.0.0.1:9"), "connection refused")):
        with pytest.raises(InfraError, match=expected) as caught:
            backend.create(request("swebench/tiny:latest", place))
        assert caught.value.failure_class is FailureClass.IMAGE_PULL
    assert len(registry.requests) > REQUESTS_OF_ONE_PULL


@pytest.mark.parametrize(
    ("message", "error", "failure"),
    [  # in the words of several engines, with the overlay2 and the containerd store
        ("received unexpected HTTP status: 503 Service Unavailable", InfraError, "image_pull"),
        ("manifest for a/b:c not found: manifest unknown: manifest unknown", ConfigError, "image_missing"),
        ("pull access denied for a/b, repository does not exist or may require 'docker login': denied: requested "
         "access to the resource is denied", ConfigError, "image_missing"),
        ("no matching manifest for linux/arm64/v8 in the manifest list entries", ConfigError, "image_missing"),
        ('failed to resolve reference "docker.io/a/b:c": docker.io/a/b:c: not found', ConfigError, "image_missing"),
        ("unauthorized: authentication required", ConfigError, "image_missing"),
        ("toomanyrequests: You have reached your pull rate limit.", InfraError, "image_pull"),
        ("received unexpected HTTP status: 500 Internal Server Error", InfraError, "image_pull"),
        ("dial tcp: lookup registry-1.docker.io on 127.0.0.53:53: no such host", InfraError, "image_pull"),
        ("net/http: TLS handshake timeout", InfraError, "image_pull"),
        ("unexpected EOF", InfraError, "image_pull"),
        ("failed to register layer: write /usr/lib/x: no space left on device", ResourceError, "out_of_disk"),
    ],
)  # fmt: skip
def test_pull_failure_reads_messages(message: str, error: type[Exception], failure: str) -> None:
    result = pull_failure("a/b:c", message)
    assert (type(result), result.failure_class.value) == (error, failure)
    assert "\n" not in result.reason


def spec(registry: Registry, keep: bool, budget: int | None) -> SandboxSpec:
    docker = DockerSpec(keep_images=keep, disk_budget_gb=budget and budget / GIB)
    return SandboxSpec(registry=f"{registry.address}/hub", docker=docker)


def names(registry: Registry, count: int) -> list[str]:
    """Serve images of a few bytes under new names."""
    for i in range(count):
        # of new content too: an image that another test also names may lose this name while it is in use
        registry.add(f"hub/many/i{i}", smallest_layer(f"image {i} of {registry.address}, {time.monotonic_ns()}"))
    return [f"many/i{i}:latest" for i in range(count)]


@contextlib.contextmanager
def keeper(
    client: DockerClient, registry: Registry, images: list[str], budget: int, keep: bool = False
) -> Iterator[ImagePrefetch]:
    it = ImagePrefetch(images, spec(registry, keep, budget), client.api)
    it.start()
    yield it
    it.close()


def here(client: DockerClient, registry: Registry, images: list[str]) -> list[str]:
    return [i for i in images if local_image(client.api, f"{registry.address}/hub/{i}")]


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.02)


@pytest.mark.docker
def test_prefetch_keeps_order_and_budget(docker_client: DockerClient, registry: Registry) -> None:
    images = names(registry, 4)
    docker_client.images.pull(f"{registry.address}/hub/{images[0]}")
    size = int((local_image(docker_client.api, f"{registry.address}/hub/{images[0]}") or {})["Size"])
    docker_client.images.remove(f"{registry.address}/hub/{images[0]}")
    units = [images[0], images[0], *images[1:]]
    with keeper(docker_client, registry, units, int(2.5 * size)) as run:
        until(lambda: images[1] in here(docker_client, registry, images))
        time.sleep(0.3)
        assert here(docker_client, registry, images) == images[:2]
        run.finish_unit(images[0])
        time.sleep(0.3)
        assert here(docker_client, registry, images) == images[:2], "one unit of the first image is still to come"
        run.finish_unit(images[0])
        until(lambda: images[2] in here(docker_client, registry, images))
        assert here(docker_client, registry, images) == images[1:3]
    assert here(docker_client, registry, images) == []


@pytest.mark.docker
def test_keeper_keeps_earlier_images(docker_client: DockerClient, registry: Registry) -> None:
    images = names(registry, 2)
    docker_client.images.pull(f"{registry.address}/hub/{images[0]}")
    with keeper(docker_client, registry, images, 2**40) as run:
        until(lambda: images[1] in here(docker_client, registry, images))
        run.finish_unit(images[0])
        run.finish_unit(images[1])
        until(lambda: here(docker_client, registry, images) == images[:1])
    assert here(docker_client, registry, images) == images[:1]


@pytest.mark.docker
def test_keep_images_keeps_images(docker_client: DockerClient, registry: Registry) -> None:
    missing, *images = ["many/missing:latest", *names(registry, 2)]
    with keeper(docker_client, registry, [missing, *images], 2**40, keep=True) as run:
        until(lambda: images[1] in here(docker_client, registry, images))
        run.finish_unit(images[0])
    assert here(docker_client, registry, images) == images


@pytest.mark.docker
def test_image_in_use_is_not_removed(docker_client: DockerClient, registry: Registry, backend: DockerBackend) -> None:
    images = names(registry, 1)
    with keeper(docker_client, registry, images, 2**40) as run:
        box = backend.create(request(images[0], registry))
        run.finish_unit(images[0])
        time.sleep(0.3)
        assert box.exec("true", timeout_s=60).exit_code == 0
        assert here(docker_client, registry, images) == images
        backend.destroy(box)
    assert here(docker_client, registry, images) == []


@pytest.mark.docker
def test_disk_check_counts_new_images(docker_host: None, registry: Registry) -> None:
    images = names(registry, 2)
    notices = check_disk(images, spec(registry, False, None))
    assert "2 of 2 images will be pulled, up to 2.6 GiB" in notices[0]
    assert len(notices) == 1
    notices = check_disk([f"a/b:{i}" for i in range(2000)], spec(registry, True, 2**60))
    assert any("--keep-images may fill the disk" in n for n in notices)
    assert any("--disk-budget-gb" in n for n in notices)
