"""Backend kubernetes on a real kubelet and a line that breaks: the suite of all backends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from swe_argo.steps.sandbox.protocol import Sandbox
from tests.cluster.faults import EXEC_RATES, POD_RATES, Faults, Kind, Proxy
from tests.cluster.lab import KubernetesLab
from tests.steps.agents.gateway.agents import assert_calls_answered_once
from tests.steps.sandbox.conformance import Conformance, run

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SEED = 1


@pytest.fixture(scope="class")
def faults() -> Faults:
    return Faults(SEED, {Kind.EXEC: EXEC_RATES, Kind.PODS: POD_RATES, Kind.WATCH: POD_RATES})


@pytest.fixture(scope="class", autouse=True)
def proxy(lab: KubernetesLab, faults: Faults) -> Iterator[Proxy]:
    """The way of the lab's backends to the API server; what is left of the sandboxes is removed without it."""
    straight = lab.reached
    with Proxy(straight, faults) as proxy:
        lab.reached, lab.shortest_deadline_s = proxy.cluster, 20.0
        lab.patience_s = 240.0  # where faults are many and the machine is busy, too
        yield proxy
    lab.reached = straight
    lab.sandboxes = [(lab.backend(), box) for _, box in lab.sandboxes]


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
