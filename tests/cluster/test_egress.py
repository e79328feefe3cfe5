"""The egress proxy of a pod without a network."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.lab import KubernetesLab
from tests.steps.gateway.toolchain import needs_go
from tests.steps.sandbox.egress.guarded import BY_NAME, CLIENTS, Guarded, assert_no_way_out, guard, serve_upstream

pytestmark = [pytest.mark.cluster, pytest.mark.slow, needs_go]


@pytest.fixture(scope="module")
def guarded(lab: KubernetesLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with serve_upstream(tmp_path_factory.mktemp("upstream")) as servers:
        box = lab.make(isolated=True)
        assert not box.machine.network
        with guard(box, servers) as guarded:
            yield guarded


def test_pod_reaches_allowed_hosts_only(guarded: Guarded) -> None:
    assert {command: guarded.run(command) for command in CLIENTS} == CLIENTS
    assert guarded.run(BY_NAME) == "answeranswer"
    assert guarded.counts["bad.test", 443, "is not an allowed host"] >= 3


def test_pod_has_no_way_out(guarded: Guarded) -> None:
    assert_no_way_out(guarded)
    api = "exec 3<>/dev/tcp/$KUBERNETES_SERVICE_HOST/443 && echo reached"
    assert "reached" not in guarded.run(f"timeout 3 bash -c '{api}'").splitlines()
