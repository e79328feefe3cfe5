"""What tests of several folders share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from swe_argo.steps.store import Store, open_store
from tests.docker_engine import NoEngineError, shared_engine

if TYPE_CHECKING:
    from docker import DockerClient


# How long an example takes is the machine's affair.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store, ``store`` of the test's folder."""
    return open_store(str(tmp_path / "store"), create=True)


@pytest.fixture(scope="session")
def docker_client() -> Iterator[DockerClient]:
    """A client of a real Docker engine, started if none answers; skips with the reason where there can be none."""
    docker = pytest.importorskip("docker")
    try:
        with shared_engine() as host, closing(docker.DockerClient(host) if host else docker.from_env()) as client:
            yield client
    except NoEngineError as reason:
        pytest.skip(f"no Docker engine: {reason}")


@pytest.fixture
def docker_host(docker_client: DockerClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The engine of ``docker_client`` is the one that this process and its children find."""
    from swe_argo.steps.sandbox.docker.engine import connect_engine

    address = docker_client.api.base_url.replace("http+docker://localhost", "unix://")
    if adapter := getattr(docker_client.api, "_custom_adapter", None):
        address = f"unix://{adapter.socket_path}"
    monkeypatch.setenv("DOCKER_HOST", address)
    connect_engine.cache_clear()
    yield
    connect_engine.cache_clear()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The groups that share something dear, which one worker makes once, come first: what is short fills the rest."""
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


pytest_plugins = ["tests.s3"]
