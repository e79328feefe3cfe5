"""Sandboxes of a provider's test server, as the tests make them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import pytest

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.sandbox.envd.machine import EnvdSandbox
from swe_argo.steps.sandbox.job_sandbox import JobSandbox
from swe_argo.steps.sandbox.protocol import Sandbox, SandboxRequest
from tests.steps.sandbox.envd.server import EnvdServer

IMAGE = "test/image:1"
LABELS = {"run": "r1", "instance": "i__1", "attempt": "1", "role": "solve"}


class EnvdBackend(Protocol):
    """A backend whose sandboxes run envd."""

    def create(self, request: SandboxRequest, /) -> EnvdSandbox: ...

    def destroy(self, sandbox: Sandbox, /) -> None: ...


Server = TypeVar("Server", bound=EnvdServer)
Backend = TypeVar("Backend", bound=EnvdBackend)


class EnvdLab(Generic[Server, Backend]):
    """``connect``: the backend of a spec; ``table``: what of the spec's table of it the tests want."""

    host = "127.0.0.1"

    def __init__(
        self,
        server: Server,
        connect: Callable[[SandboxSpec], Backend],
        name: str,
        shortest_deadline_s: float,
        table: dict[str, Any],
    ) -> None:
        self.server = server
        self.shortest_deadline_s = shortest_deadline_s
        self.confines_network = self.is_root = server.machines.isolated
        self._connect, self._name, self._table = connect, name, table
        self.backend = self.connect()
        self.sandboxes: list[EnvdSandbox] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for box in self.sandboxes:
            self.destroy(box)

    def connect(self, **table: Any) -> Backend:
        return self._connect(SandboxSpec.model_validate({self._name: self._table | table}))

    def make(self, **options: Any) -> EnvdSandbox:
        name = f"sb-test-{time.monotonic_ns()}"
        defaults = {"name": name, "image": IMAGE, "deadline_s": 900, "network": False, "labels": LABELS}
        box = self.backend.create(SandboxRequest(**{**defaults, **options}))
        self.sandboxes.append(box)
        return box

    def create(self, *, network: bool = False, deadline_s: float = 900) -> Sandbox:
        return self.make(network=network, deadline_s=deadline_s)

    def destroy(self, sandbox: Sandbox) -> None:
        self.backend.destroy(sandbox)

    def kill(self, sandbox: Sandbox) -> None:
        assert isinstance(sandbox, JobSandbox)
        self.server.machines.kill(sandbox.transport.sandbox_id)


def image_folder(folder: Path, checkout: Path) -> Path:
    """A folder of folder images in which ``IMAGE`` is the checkout."""
    shutil.copytree(checkout, folder / "images" / "test__image:1" / "testbed")
    return folder / "images"


@contextmanager
def at_server(server: EnvdServer, home: Path, forget_settings: Callable[[], None]) -> Iterator[None]:
    """This process finds the running server by its environment meanwhile; no machine of it is left behind."""
    with server.running(), pytest.MonkeyPatch.context() as patch:
        patch.delenv("E2B_API_KEY", raising=False)
        for name, value in {**server.variables, "SWE_ARGO_HOME": str(home)}.items():
            patch.setenv(name, value)
        forget_settings()
        yield
        assert server.machines.list_all() == []
    forget_settings()
