"""An API server that is killed and comes back: what is done in sandboxes goes on, by an account it must learn anew."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.lab import KubernetesLab, laboratory
from tests.cluster.real_cluster import Cluster
from tests.steps.sandbox.conformance import run
from tests.workflows.command import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

AWAY_S = "10"


@pytest.fixture(scope="module")
def lab(cluster: Cluster, sandbox_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesLab]:
    with laboratory(cluster, sandbox_image, tmp_path_factory.mktemp("lab")) as lab:
        lab.patience_s = 240.0  # a busy machine takes its time to start an API server
        yield lab


def test_command_survives_an_outage(lab: KubernetesLab) -> None:
    box = lab.create(deadline_s=600)
    with ThreadPoolExecutor(1) as pool:
        command = pool.submit(box.exec, "echo ran >>/tmp/runs; sleep 15; cat /tmp/runs", timeout_s=300)
        wait_for(lambda: run(box, "cat /tmp/runs").stdout)
        outage = lab.cluster.command("restart", "kube-apiserver", AWAY_S)
        assert outage.returncode == 0, outage.stderr
        assert command.result(timeout=300).stdout == b"ran\n"


def test_requests_survive_an_outage(lab: KubernetesLab) -> None:
    """Each at a moment of its own, so that some meet the server just as it starts and knows no roles yet."""
    box = lab.create(deadline_s=600)
    with ThreadPoolExecutor(4) as pool:
        outage = pool.submit(lab.cluster.command, "restart", "kube-apiserver", AWAY_S)
        creations = [pool.submit(lab.create, deadline_s=600) for _ in range(2)]
        for number in range(20):
            box.write(f"/tmp/{number}", b"%d" % number)
            assert box.read(f"/tmp/{number}") == b"%d" % number
        assert outage.result(timeout=300).returncode == 0
        for creation in creations:
            assert run(creation.result(timeout=300), "echo here").stdout == b"here\n"
    box.transport.check()  # type: ignore[attr-defined]
