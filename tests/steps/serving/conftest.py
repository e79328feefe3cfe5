from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.one_certificate import one_certificate
from tests.steps.datasets.hub_server import Hub, Repo, serving

__all__ = ["one_certificate"]

if TYPE_CHECKING:  # the tests that need the extra tinker say so themselves
    from tests.tinker_server.proxy import RunningProxy

HUB_ID, COMMIT = "test/model", "c" * 40


@pytest.fixture(scope="session")
def model_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.byte_model import make_model

    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def hub(model_files: Path) -> Iterator[Hub]:
    files = {path.name: path.read_bytes() for path in model_files.iterdir()} | {"model.safetensors": b"weights"}
    with serving(Hub({HUB_ID: Repo({COMMIT: files}, {"main": COMMIT})})) as hub:
        yield hub


def hub_environment(hub: Hub, cache: Path) -> dict[str, str]:
    """Return the environment of a process that downloads from this hub alone."""
    inherited = {name: "" for name in os.environ if name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE")}
    return inherited | {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(cache)}


@pytest.fixture(scope="module")
def running(model_files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningProxy]:
    from tests.tinker_server.proxy import running_proxy
    from tests.tinker_server.server import Sampled, tinker_server

    with (
        tinker_server(lambda *_: Sampled([258])) as server,
        running_proxy(server, model_files, tmp_path_factory.mktemp("proxy")) as proxy,
    ):
        yield proxy


@pytest.fixture
def proxy(running: RunningProxy) -> RunningProxy:
    """The module's proxy, its model saying hello."""
    running.server.calls.clear()
    running.server.refuse.clear()
    running.says("Hello.")
    return running
