"""The conformance suite at E2B itself, or at a service that speaks its protocol, on the account of the environment.

It makes some dozen small sandboxes from the template ``base``, or from E2B_TEST_TEMPLATE: with bash, coreutils and git.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("e2b", reason="the extra e2b is not installed")

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.sandbox.e2b.backend import connect
from swe_argo.steps.sandbox.e2b.orphans import e2b_sandboxes
from swe_argo.steps.sandbox.e2b.service import kill_sandbox
from swe_argo.steps.sandbox.job_sandbox import JobSandbox
from swe_argo.steps.sandbox.protocol import Sandbox, SandboxRequest
from tests.steps.sandbox.conformance import Conformance, says

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not os.environ.get("E2B_API_KEY"), reason="E2B_API_KEY is not set"),
]
IMAGE = "test/image:1"
REPOSITORY = """rm -rf /testbed && mkdir /testbed && cd /testbed && echo hello >hello.txt && git init -q && git add . &&
git -c user.name=T -c user.email=t@example.org commit -qm one"""


class LiveLab:
    host = None
    confines_network = True
    is_root = True
    shortest_deadline_s = 20.0

    def __init__(self, folder: Path) -> None:
        templates = folder / "templates.json"
        templates.write_text(json.dumps({IMAGE: os.environ.get("E2B_TEST_TEMPLATE", "base")}))
        self.backend = connect(SandboxSpec.model_validate({"backend": "e2b", "e2b": {"templates": str(templates)}}))
        self.sandboxes: list[Sandbox] = []

    def create(self, *, network: bool = False, deadline_s: float = 120) -> Sandbox:
        name = f"sb-live-{time.time_ns()}"
        box = self.backend.create(SandboxRequest(name, IMAGE, deadline_s, network=network, labels={"run": "live"}))
        self.sandboxes.append(box)
        says(box, f"cd / && {REPOSITORY}")
        return box

    def destroy(self, sandbox: Sandbox) -> None:
        self.backend.destroy(sandbox)

    def kill(self, sandbox: Sandbox) -> None:
        assert isinstance(sandbox, JobSandbox)
        kill_sandbox(sandbox.transport.sandbox_id)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveLab]:
    lab = LiveLab(tmp_path_factory.mktemp("live"))
    try:
        yield lab
    finally:
        for box in lab.sandboxes:
            lab.destroy(box)
    assert not [name for name in e2b_sandboxes().find_orphans() if name.startswith("sb-live-")]


class TestLiveE2B(Conformance):
    pass


def test_solve_sandbox_has_no_network(lab: LiveLab) -> None:
    reach = "timeout 5 bash -c 'exec 3<>/dev/tcp/1.1.1.1/443' && echo reached || echo unreached"
    assert lab.create().exec(reach, timeout_s=20).stdout == b"unreached\n"
