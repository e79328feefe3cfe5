"""A server that speaks E2B's wire protocol to the real SDK, and runs commands for real in sandboxes of this machine."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from werkzeug.wrappers import Request, Response

from tests.steps.sandbox.e2b.control import API_KEY, ControlPlane
from tests.steps.sandbox.e2b.faults import Faults
from tests.steps.sandbox.envd.answers import failure
from tests.steps.sandbox.envd.machines import Machines
from tests.steps.sandbox.envd.server import EnvdServer


class E2BServer(EnvdServer):
    def __init__(self, images: Path, templates: dict[str, str], host: str = "127.0.0.1", port: int = 0) -> None:
        self.faults = Faults()
        super().__init__(Machines(images, templates), self.faults, host, port)
        self.control = ControlPlane(self.machines, self.faults)
        self.line_s = 0.0
        """The way to a sandbox and back takes so long."""

    @property
    def variables(self) -> dict[str, str]:
        """Of the environment, for the SDK and for us."""
        return {
            "E2B_API_KEY": API_KEY,
            "E2B_API_URL": self.address,
            "E2B_SANDBOX_URL": self.address,
            "E2B_HTTP_VERSION": "1.1",
        }

    def answer_envd(
        self, request: Request, number: str, environ: dict[str, Any], start_response: Any
    ) -> Iterable[bytes]:
        time.sleep(self.line_s)
        if refusal := self.control.limits.refuse_operation():
            return failure(429, refusal)(environ, start_response)
        return super().answer_envd(request, number, environ, start_response)

    def answer_control(self, request: Request) -> Response:
        return self.control.answer(request)
