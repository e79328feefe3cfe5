"""The conformance suite at E2B itself, or at a service that speaks its protocol, on the account of the environment.

It creates some dozen small sandboxes from the template ``base``, or E2B_TEST_TEMPLATE: with bash, coreutils and git.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

pytest.importorskip("e2b", reason="the extra e2b is not installed")

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.sandbox.e2b.backend import E2BBackend
from swe_argo.steps.sandbox.e2b.service import kill_sandbox
from swe_argo.steps.sandbox.envd.machine import EnvdSandbox
from swe_argo.steps.sandbox.job_sandbox import JobSandbox
from swe_argo.steps.sandbox.protocol import Sandbox
from tests.steps.sandbox.conformance import Conformance, says
from tests.steps.sandbox.lab import IMAGE, BackendLab

pytestmark = [pytest.mark.live, pytest.mark.skipif(not os.environ.get("E2B_API_KEY"), reason="E2B_API_KEY is not set")]
REPOSITORY = """rm -rf /testbed && mkdir /testbed && cd /testbed && echo hello >hello.txt && git init -q && git add . &&
git -c user.name=T -c user.email=t@example.org commit -qm one"""


class LiveLab(BackendLab[EnvdSandbox]):
    host = None
    shortest_deadline_s = 20.0

    def create(self, *, network: bool = False, deadline_s: float = 120) -> Sandbox:
        box = super().create(network=network, deadline_s=deadline_s)
        says(box, f"cd / && {REPOSITORY}")
        return box

    def kill(self, sandbox: Sandbox) -> None:
        assert isinstance(sandbox, JobSandbox)
        kill_sandbox(sandbox.transport.sandbox_id)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveLab]:
    templates = tmp_path_factory.mktemp("live") / "templates.json"
    templates.write_text(json.dumps({IMAGE: os.environ.get("E2B_TEST_TEMPLATE", "base")}))
    spec = SandboxSpec.model_validate({"backend": "e2b", "e2b": {"templates": str(templates)}})
    with LiveLab(E2BBackend.connect(spec)) as lab:
        yield lab
    assert not [name for name in E2BBackend.find_orphans() if name.startswith("swe-argo-test-")]


class TestLiveE2B(Conformance):
    pass


def test_solve_sandbox_has_no_network(lab: LiveLab) -> None:
    reach = "timeout 5 bash -c 'exec 3<>/dev/tcp/1.1.1.1/443' && echo reached || echo unreached"
    assert lab.create().exec(reach, timeout_s=20).stdout == b"unreached\n"
