"""Backend kubernetes on a real kubelet and a line that breaks: the suite of all backends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from steps.sandbox.protocol import Sandbox
from tests.cluster.faults import EXEC_RATES, POD_RATES, Faults, Kind, Proxy
from tests.cluster.lab import KubernetesLab, laboratory
from tests.cluster.real_cluster import Cluster
from tests.steps.agents.gate.agents import assert_each_call_once
from tests.steps.sandbox.conformance import Conformance, run

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SEED = 1


@pytest.fixture(scope="class")
def faults() -> Faults:
    return Faults(SEED, {Kind.EXEC: EXEC_RATES, Kind.PODS: POD_RATES, Kind.WATCH: POD_RATES})


@pytest.fixture(scope="class")
def lab(
    cluster: Cluster, sandbox_image: str, tmp_path_factory: pytest.TempPathFactory, faults: Faults
) -> Iterator[KubernetesLab]:
    """Its sandboxes are made, used and destroyed through the proxy; what is left of them is removed without."""
    with laboratory(cluster, sandbox_image, tmp_path_factory.mktemp("lab")) as lab:
        straight = lab.reached
        with Proxy(straight, faults) as proxy:
            lab.reached, lab.shortest_deadline_s = proxy.cluster, 20.0
            yield lab
        lab.reached = straight
        lab.made = [(lab.backend(), box) for _, box in lab.made]


@pytest.fixture(scope="class")
def box(lab: KubernetesLab) -> Sandbox:
    return lab.create(deadline_s=900)


class TestUnderFaults(Conformance):
    def test_every_fault_was_met(self, box: Sandbox, faults: Faults) -> None:
        for _ in range(200):
            if all(faults.met[Kind.EXEC, fault] for fault in EXEC_RATES):
                return
            run(box, "true")
        raise AssertionError(faults.told())

    def test_no_model_call_of_an_agent_is_lost_and_none_is_asked_twice(self, box: Sandbox) -> None:
        assert_each_call_once(box, 200)
