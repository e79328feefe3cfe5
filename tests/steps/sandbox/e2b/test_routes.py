"""A service that lags behind: sandboxes made and listed by /sandboxes, which is found out by asking it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("e2b", reason="the extra e2b is not installed")

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.diagnosis import diagnose
from swe_argo.steps.sandbox.e2b.backend import E2BBackend, connect
from swe_argo.steps.sandbox.e2b.orphans import e2b_sandboxes
from swe_argo.steps.sandbox.e2b.templates import template_name
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.sandbox.protocol import SandboxRequest
from swe_argo.steps.settings import settings
from tests.steps.sandbox.conformance import says
from tests.steps.sandbox.e2b.server import E2BServer

pytestmark = pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe()))

IMAGE = "test/image:1"


@pytest.fixture
def server(tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[E2BServer]:
    shutil.copytree(checkout, tmp_path / "images" / "test__image:1" / "testbed")
    server = E2BServer(tmp_path / "images", {template_name(IMAGE): IMAGE})
    server.faults.only_old_routes = True
    with server.running():
        for name, value in {**server.variables, "SWE_ARGO_HOME": str(tmp_path / "home")}.items():
            monkeypatch.setenv(name, value)
        settings.cache_clear()
        yield server
    settings.cache_clear()


@pytest.fixture
def backend(server: E2BServer) -> E2BBackend:
    return connect(SandboxSpec.model_validate({"e2b": {"creations_per_second": 1000}}))


def request(image: str = IMAGE) -> SandboxRequest:
    return SandboxRequest(f"sb-test-{time.monotonic_ns()}", image, 60, network=False, labels={"run": "r1"})


def test_older_routes_do_everything(server: E2BServer, backend: E2BBackend) -> None:
    box = backend.create(request())
    assert says(box, "cat hello.txt") == "hello\n"
    body = server.control.creates[-1]
    assert (body["timeout"], body["allow_internet_access"], body["metadata"]["run"]) == (60, False, "r1")
    assert diagnose("e2b", SandboxSpec()).well
    machine = server.machines.list_all()[0]
    machine.metadata["owner"] = f"{machine.metadata['owner'].partition(':')[0]}:999999999:1"
    assert list(e2b_sandboxes().find_orphans().values()) == [machine.number]
    backend.destroy(box)
    assert server.machines.list_all() == []


def test_older_routes_are_detected_once(server: E2BServer, backend: E2BBackend) -> None:
    for _ in range(3):
        backend.destroy(backend.create(request()))
    assert server.control.old_creates == 3
    assert server.control.requests.count("POST /v2/sandboxes") == 2  # the first create, and one that makes nothing


def test_missing_template_keeps_routes(server: E2BServer, backend: E2BBackend) -> None:
    server.faults.only_old_routes = False
    with pytest.raises(ConfigError, match="has no template") as caught:
        backend.create(request("other/image:2"))
    assert caught.value.failure_class is FailureClass.IMAGE_MISSING
    assert server.control.old_creates == 0


def test_older_routes_make_one_sandbox(server: E2BServer, backend: E2BBackend) -> None:
    server.faults.lost_create_answers = 1
    box = backend.create(request())
    assert server.control.old_creates == 2
    assert [machine.number for machine in server.machines.list_all()] == [box.transport.sandbox_id]
