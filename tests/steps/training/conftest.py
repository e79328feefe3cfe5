from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.tinker_server.server import Sampled, TinkerServer, tinker_server


@pytest.fixture
def tinker(monkeypatch: pytest.MonkeyPatch) -> Iterator[TinkerServer]:
    """A server of Tinker's protocol that trains. Its tests ignore ResourceWarning, see there."""
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    with tinker_server(lambda *_: Sampled([1])) as server:
        yield server
        gc.collect()  # connections that the SDK leaves open are told while their test's filter holds
