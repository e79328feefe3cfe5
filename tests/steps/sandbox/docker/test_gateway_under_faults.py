"""The gateway in a container whose engine is reached over a line that breaks: no call is lost, none is asked twice."""

from __future__ import annotations

import gc
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from docker import APIClient, DockerClient

from swe_argo.steps.sandbox.docker.backend import DockerBackend
from swe_argo.steps.sandbox.docker.engine import EngineRetries
from swe_argo.steps.sandbox.protocol import SandboxRequest
from tests.base_image import testbed_image as make_testbed_image
from tests.steps.agents.gateway.agents import assert_calls_answered_once
from tests.steps.gateway.toolchain import needs_go

pytestmark = [pytest.mark.docker, pytest.mark.slow, needs_go]

CALLS = 200
RATE = 0.06
"""The share of connections that break before anything is passed on, and as many in what is answered."""
LATER = 0.8
"""The share of them that break in one of the next answers: a shell that stays open gives many."""


class BreakingLine:
    """A Unix socket in front of the engine's, some of whose connections break, by a seed."""

    def __init__(self, folder: Path, engine: str, seed: int) -> None:
        self.path = str(folder / "line")
        self.name = folder.name.lower().replace("_", "-")[:30]
        self.on = False
        self.broken = 0
        self._engine = engine
        self._random = random.Random(seed)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self.path)
        self._server.listen(64)
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._server.accept()
                drawn = self._random.random() if self.on else 1.0
                remaining = self._random.choice((0, 5, 60, 400, 2000)) if drawn < 2 * RATE else None
                if 2 * RATE <= drawn < 2 * RATE + LATER:
                    remaining = self._random.randrange(200, 4000)
                self.broken += remaining is not None
                if drawn < RATE:
                    line.close()
                else:
                    threading.Thread(target=self._pass, args=(line, remaining), daemon=True).start()

    def _pass(self, line: socket.socket, remaining: int | None) -> None:
        """``remaining``: bytes of answers that get through."""
        with socket.socket(socket.AF_UNIX) as engine, line:
            engine.connect(self._engine)
            sending = threading.Thread(target=_copy, args=(line, engine, None), daemon=True)
            sending.start()
            _copy(engine, line, remaining)
            for peer in (engine, line):
                with suppress(OSError):
                    peer.shutdown(socket.SHUT_RDWR)
            sending.join()


def _copy(source: socket.socket, target: socket.socket, remaining: int | None) -> None:
    with suppress(OSError):
        while remaining != 0 and (data := source.recv(1 << 16 if remaining is None else remaining)):
            target.sendall(data)
            remaining = None if remaining is None else remaining - len(data)
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def line(docker_client: DockerClient, tmp_path: Path) -> Iterator[BreakingLine]:
    adapter = getattr(docker_client.api, "_custom_adapter", None)
    if adapter is None:
        pytest.skip("the engine is not reached by a Unix socket")
    with closing(BreakingLine(tmp_path, adapter.socket_path, seed=1)) as line:
        yield line
    gc.collect()  # what the SDK leaves open is told while the test's filter holds


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_gateway_asks_each_call_once(docker_client: DockerClient, checkout: Path, line: BreakingLine) -> None:
    image = make_testbed_image(docker_client, checkout)
    with closing(APIClient(f"unix://{line.path}", num_pools=1)) as api:
        backend = DockerBackend(api, patience=EngineRetries(attempts=12, first_s=0.02, longest_s=0.2))
        box = backend.create(SandboxRequest(f"swe-argo-test-gateway-{line.name}", image, 600, network=False))
        try:
            line.on = True
            assert_calls_answered_once(box, CALLS)
            assert line.broken > 10
        finally:
            line.on = False
            backend.destroy(box)
