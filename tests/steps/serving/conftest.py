from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # the tests that need the extra tinker say so themselves
    from tests.tinker_server.proxy import RunningProxy


@pytest.fixture(scope="session")
def model_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.byte_model import make_model

    return make_model(tmp_path_factory.mktemp("model"))


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
