"""Backend local, but for the sandboxes whose ``role attempt`` stands in the file ``orders`` beside this one: once each
they cannot be made. A test copies this file to where its orders are."""

from __future__ import annotations

from pathlib import Path

from steps.contracts.failure import FailureClass
from steps.contracts.sandbox_spec import SandboxSpec
from steps.errors import InfraError
from steps.sandbox.local import backend
from steps.sandbox.protocol import Sandbox, SandboxRequest

mini_images = "folders"


def connect(spec: SandboxSpec) -> FailingBackend:
    return FailingBackend(spec)


class FailingBackend:
    def __init__(self, spec: SandboxSpec) -> None:
        self._local = backend.connect(spec)
        self._orders = Path(__file__).with_name("orders")

    def create(self, request: SandboxRequest) -> Sandbox:
        order = f"{request.labels['role']} {request.labels['attempt']}"
        lines = self._orders.read_text().splitlines() if self._orders.is_file() else []
        if order in lines:
            lines.remove(order)
            self._orders.write_text("\n".join(lines))
            raise InfraError(FailureClass.NODE_LOST, "the node went away")
        return self._local.create(request)

    def destroy(self, sandbox: Sandbox) -> None:
        self._local.destroy(sandbox)
