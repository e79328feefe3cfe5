"""An API server that is killed and comes back: what is done in sandboxes goes on, by an account it must learn anew."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.installed_chart import PATIENCE_S
from tests.cluster.lab import KubernetesLab
from tests.steps.sandbox.conformance import run
from tests.workflows.command import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

AWAY_S = "10"


@pytest.fixture(autouse=True)
def patient(lab: KubernetesLab) -> None:
    lab.patience_s = 240.0  # a busy machine takes its time to start an API server


def test_command_survives_an_outage(lab: KubernetesLab) -> None:
    box = lab.create(deadline_s=600)
    with ThreadPoolExecutor(1) as pool:
        command = pool.submit(box.exec, "echo ran >>/tmp/runs; sleep 15; cat /tmp/runs", timeout_s=300)
        wait_for(lambda: run(box, "cat /tmp/runs").stdout)
        outage = lab.cluster.command("restart", "kube-apiserver", AWAY_S)
        assert outage.returncode == 0, outage.stderr
        assert command.result(timeout=PATIENCE_S).stdout == b"ran\n"


def test_requests_survive_an_outage(lab: KubernetesLab) -> None:
    """Each at a moment of its own, so that some meet the server just as it starts and knows no roles yet."""
    box = lab.create(deadline_s=600)
    with ThreadPoolExecutor(4) as pool:
        outage = pool.submit(lab.cluster.command, "restart", "kube-apiserver", AWAY_S)
        creations = [pool.submit(lab.create, deadline_s=600) for _ in range(2)]
        for number in range(20):
            box.write(f"/tmp/{number}", b"%d" % number)
            assert box.read(f"/tmp/{number}") == b"%d" % number
        assert outage.result(timeout=PATIENCE_S).returncode == 0
        for creation in creations:
            assert run(creation.result(timeout=PATIENCE_S), "echo here").stdout == b"here\n"
    box.transport.check()  # type: ignore[attr-defined]
