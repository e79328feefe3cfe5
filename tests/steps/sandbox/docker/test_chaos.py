"""A Docker engine that dies, hangs and comes back under a sandbox."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import docker
import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError
from swe_argo.steps.sandbox.docker.backend import DockerBackend
from swe_argo.steps.sandbox.docker.container import DockerContainer, DockerSandbox
from swe_argo.steps.sandbox.docker.engine import EngineRetries
from swe_argo.steps.sandbox.job_sandbox import JobSandbox
from swe_argo.steps.sandbox.protocol import SandboxRequest
from tests.base_image import smallest_layer
from tests.docker_engine import Engine, NoEngineError

# The SDK does not close the socket of a connection that was refused.
pytestmark = [pytest.mark.docker, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

IMAGE = "swe-argo-test-tiny:1"
PATIENCE = EngineRetries(attempts=3, first_s=0.1, longest_s=0.5)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """An engine of its own, which may be broken."""
    engine = Engine(Path(tempfile.mkdtemp(prefix="swe-argo-dk-")))
    try:
        engine.start()
    except NoEngineError as reason:
        pytest.skip(f"no Docker engine to break: {reason}")
    with closing(docker.DockerClient(engine.host)) as client:
        client.api.import_image_from_data(smallest_layer(), repository="swe-argo-test-tiny", tag="1")
    yield engine
    engine.remove()


@pytest.fixture
def backend(engine: Engine) -> Iterator[DockerBackend]:
    if engine.pid is None:
        engine.start()
    with closing(docker.DockerClient(engine.host)) as client:
        yield DockerBackend(client.api, patience=PATIENCE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def box(backend: DockerBackend) -> DockerSandbox:
    name = f"swe-argo-test-chaos-{time.monotonic_ns()}"
    return backend.create(SandboxRequest(name, IMAGE, deadline_s=900, network=False, labels={"run": "chaos"}))


@pytest.fixture
def hurried(engine: Engine, box: DockerSandbox) -> Iterator[DockerSandbox]:
    """The same machine, for who waits two seconds for an answer of the engine."""
    with closing(docker.DockerClient(engine.host)) as client:
        client.api.timeout = 2
        own = box.transport
        request = SandboxRequest(own.name, IMAGE, deadline_s=900, network=False)
        hurried = DockerContainer(client.api, own.container, request, box.machine, PATIENCE)
        yield JobSandbox(box.machine, hurried)
        hurried.close()


def lost(box: DockerSandbox, command: str) -> InfraError:
    with pytest.raises(InfraError) as caught:
        box.exec(command, timeout_s=1000)
    return caught.value


def test_killed_engine_is_infra_error(engine: Engine, backend: DockerBackend, box: DockerSandbox) -> None:
    killing = threading.Timer(0.5, engine.kill)
    killing.start()
    error = lost(box, "sleep 1000")
    killing.join()
    assert error.failure_class is FailureClass.EXEC
    assert "stopped answering" in error.reason
    with pytest.raises(InfraError):
        backend.destroy(box)
    engine.start()
    assert lost(box, "true").failure_class is FailureClass.SANDBOX_LOST
    backend.destroy(box)
    backend.destroy(box)


def test_restarted_engine_reports_loss(engine: Engine, backend: DockerBackend, box: DockerSandbox) -> None:
    engine.stop()
    outside = box.outside_failure()
    assert outside is not None
    assert "stopped answering" in outside.reason
    engine.start()
    outside = box.outside_failure()
    assert outside is not None
    assert outside.failure_class is FailureClass.SANDBOX_LOST
    backend.destroy(box)


def test_hanging_engine_is_infra_error(
    engine: Engine, backend: DockerBackend, box: DockerSandbox, hurried: DockerSandbox
) -> None:
    pid = engine.pid
    assert pid is not None
    threading.Timer(0.5, os.kill, [pid, signal.SIGSTOP]).start()
    try:
        assert lost(hurried, "sleep 1000").failure_class is FailureClass.EXEC
    finally:
        os.kill(pid, signal.SIGCONT)
    assert box.exec("echo back", timeout_s=60).stdout == b"back\n"
    backend.destroy(box)


def test_short_hang_loses_nothing(engine: Engine, backend: DockerBackend, box: DockerSandbox) -> None:
    pid = engine.pid
    assert pid is not None

    def hang() -> None:
        time.sleep(0.3)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1.2)
        os.kill(pid, signal.SIGCONT)

    threading.Thread(target=hang).start()
    result = box.exec("echo a; sleep 1; echo b; exit 5", timeout_s=60)
    assert (result.exit_code, result.stdout) == (5, b"a\nb\n")
    backend.destroy(box)
