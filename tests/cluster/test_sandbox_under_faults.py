"""Backend kubernetes on a real kubelet and a line that breaks: the suite of all backends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from swe_argo.steps.sandbox.protocol import Sandbox
from tests.cluster.faults import EXEC_RATES, POD_RATES, Faults, Kind, Proxy
from tests.cluster.lab import KubernetesLab, laboratory
from tests.cluster.real_cluster import Cluster
from tests.steps.agents.gateway.agents import assert_calls_answered_once
from tests.steps.sandbox.conformance import Conformance, run

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SEED = 1


@pytest.fixture(scope="class")
def faults() -> Faults:
    return Faults(SEED, {Kind.EXEC: EXEC_RATES, Kind.PODS: POD_RATES, Kind.WATCH: POD_RATES})


@pytest.fixture(scope="class")
def straight(cluster: Cluster, sandbox_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesLab]:
    with laboratory(cluster, sandbox_image, tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.fixture(scope="class")
def proxy(straight: KubernetesLab, faults: Faults) -> Iterator[Proxy]:
    with Proxy(straight.reached, faults) as proxy:
        yield proxy


@pytest.fixture(scope="class")
def lab(straight: KubernetesLab, proxy: Proxy) -> Iterator[KubernetesLab]:
    """Its sandboxes are made, used and destroyed through the proxy; what is left of them is removed without."""
    reached, straight.reached, straight.shortest_deadline_s = straight.reached, proxy.cluster, 20.0
    straight.patience_s = 240.0  # where faults are many and the machine is busy, too
    yield straight
    straight.reached = reached
    straight.sandboxes = [(straight.backend(), box) for _, box in straight.sandboxes]


@pytest.fixture(scope="class")
def box(lab: KubernetesLab) -> Sandbox:
    return lab.create(deadline_s=3600)


class TestUnderFaults(Conformance):
    def test_every_fault_is_met(self, box: Sandbox, proxy: Proxy, faults: Faults) -> None:
        faults.due[Kind.EXEC] = [fault for fault in EXEC_RATES if not faults.met[Kind.EXEC, fault]]
        for _ in range(100):
            if not faults.due[Kind.EXEC]:
                return
            proxy.cut_lines()
            run(box, "true")
        raise AssertionError(faults.describe())

    def test_gateway_asks_each_call_once(self, box: Sandbox) -> None:
        assert_calls_answered_once(box, 200)
