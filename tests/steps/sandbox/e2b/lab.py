"""Sandboxes of the test server, as the tests make them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from steps.contracts.run_spec import SandboxSpec
from steps.sandbox.e2b.backend import E2BBackend, connect
from steps.sandbox.e2b.templates import template_name
from steps.sandbox.envd.machine import EnvdSandbox
from steps.sandbox.job_sandbox import JobSandbox
from steps.sandbox.protocol import Sandbox, SandboxRequest
from steps.settings import settings
from tests.steps.sandbox.e2b.server import E2BServer

IMAGE = "test/image:1"
LABELS = {"run": "r1", "instance": "i__1", "attempt": "1", "role": "solve"}


class E2BLab:
    host = "127.0.0.1"
    shortest_deadline_s = 3.0

    def __init__(self, server: E2BServer) -> None:
        self.server = server
        self.confines_network = self.is_root = server.machines.isolated
        self.backend = self.connect()
        self.made: list[EnvdSandbox] = []

    def connect(self, **table: Any) -> E2BBackend:
        return connect(SandboxSpec.model_validate({"e2b": {"creations_per_second": 1000, **table}}))

    def make(self, **options: Any) -> EnvdSandbox:
        name = f"sb-test-{time.monotonic_ns()}"
        defaults = {"name": name, "image": IMAGE, "deadline_s": 120, "network": False, "labels": LABELS}
        box = self.backend.create(SandboxRequest(**{**defaults, **options}))
        self.made.append(box)
        return box

    def create(self, *, network: bool = False, deadline_s: float = 120) -> Sandbox:
        return self.make(network=network, deadline_s=deadline_s)

    def destroy(self, sandbox: Sandbox) -> None:
        self.backend.destroy(sandbox)

    def kill(self, sandbox: Sandbox) -> None:
        assert isinstance(sandbox, JobSandbox)
        self.server.machines.kill(sandbox.transport.sandbox_id)


@contextmanager
def laboratory(folder: Path, checkout: Path) -> Iterator[E2BLab]:
    """The lab of a server of its own, which this process finds by its environment meanwhile."""
    shutil.copytree(checkout, folder / "images" / "test__image:1" / "testbed")
    server = E2BServer(folder / "images", {template_name(IMAGE): IMAGE})
    with server.running(), pytest.MonkeyPatch.context() as patch:
        for name, value in {**server.variables, "SWE_ARGO_HOME": str(folder / "home")}.items():
            patch.setenv(name, value)
        settings.cache_clear()
        lab = E2BLab(server)
        yield lab
        for box in lab.made:
            lab.destroy(box)
        assert server.machines.list_all() == []
    settings.cache_clear()
