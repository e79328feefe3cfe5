"""The conformance suite at Tencent's own service (``make test-ags``), where somebody lends an account and an image."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("e2b", reason="the extra ags is not installed")
pytest.importorskip("tencentcloud", reason="the extra ags is not installed")

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.sandbox.ags.backend import connect
from swe_argo.steps.sandbox.ags.control import stop
from swe_argo.steps.sandbox.ags.instances import list_instances
from swe_argo.steps.sandbox.envd.machine import EnvdSandbox
from swe_argo.steps.sandbox.envd.orphans import OURS
from swe_argo.steps.sandbox.job_sandbox import JobSandbox
from swe_argo.steps.sandbox.protocol import Sandbox, SandboxRequest
from tests.steps.sandbox.conformance import Conformance

IMAGE = "SWE_ARGO_TEST_AGS_IMAGE"
MISSING = [
    variable
    for variable in ("TENCENTCLOUD_SECRET_ID", "TENCENTCLOUD_SECRET_KEY", IMAGE)
    if not os.environ.get(variable)
]
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(MISSING), reason=f"no account of AGS is lent: {', '.join(MISSING)} not set"),
]


class ServiceLab:
    """The image holds bash, coreutils, git and the checkout of the suite, where AGS can pull it from."""

    host = None
    confines_network = True
    is_root = True
    shortest_deadline_s = 30.0

    def __init__(self) -> None:
        self.backend = connect(SandboxSpec())
        self.sandboxes: list[EnvdSandbox] = []

    def create(self, *, network: bool = False, deadline_s: float = 1800) -> Sandbox:
        name = f"sb-conformance-{time.time_ns()}"
        labels = {"run": "conformance", "instance": "none", "attempt": "1", "role": "solve"}
        box = self.backend.create(SandboxRequest(name, os.environ[IMAGE], deadline_s, network=network, labels=labels))
        self.sandboxes.append(box)
        return box

    def destroy(self, sandbox: Sandbox) -> None:
        self.backend.destroy(sandbox)

    def kill(self, sandbox: Sandbox) -> None:
        assert isinstance(sandbox, JobSandbox)
        stop(sandbox.transport.sandbox_id)


@pytest.fixture(scope="class")
def lab() -> Iterator[ServiceLab]:
    lab = ServiceLab()
    yield lab
    for box in lab.sandboxes:
        lab.destroy(box)
    ids = {box.transport.sandbox_id for box in lab.sandboxes}
    assert not ids & {number for number, _ in list_instances(OURS)}


class TestAGSItself(Conformance):
    pass
