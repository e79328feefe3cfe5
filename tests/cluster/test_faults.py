"""Commands and sandboxes while the connections to the API server break, time out and are refused."""

from __future__ import annotations

import secrets
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from swe_argo.steps.contracts.sandbox_spec import KubernetesSpec, SandboxSpec
from swe_argo.steps.kube.client import RetryPolicy
from swe_argo.steps.sandbox.kubernetes.backend import KubernetesBackend
from swe_argo.steps.sandbox.kubernetes.namespace import NamespaceSettings
from swe_argo.steps.sandbox.kubernetes.pod import KubernetesSandbox
from tests.cluster.faults import EXEC_RATES, POD_RATES, Fault, Faults, Kind, Proxy
from tests.cluster.lab import SMALL, KubernetesLab

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

TRIES = 200
SEED = 58
"""By which 70 execs, and 40 requests for pods, meet every fault as often as is asserted here."""
LATER = {Fault.LATER: 0.7}
"""Of all the others: a shell that stays open for good would meet no fault any more."""
SORTS = {
    "dropped before it started": {Fault.REFUSE: 0.15, Fault.BEFORE: 0.15, **LATER},
    "dropped after it started": {Fault.AFTER: 0.15, Fault.STATUS: 0.15, **LATER},
    "429": {Fault.BUSY: 0.3, **LATER},
    "500": {Fault.ERROR: 0.3, **LATER},
    "two seconds late": {Fault.SLOW: 0.3, **LATER},
    "all of them": EXEC_RATES,
}


def faulty(lab: KubernetesLab, proxy: Proxy) -> KubernetesBackend:
    """A backend that knows no other way to the cluster than the proxy."""
    spec = SandboxSpec(backend="kubernetes", kubernetes=KubernetesSpec(namespace=lab.namespace))
    patience = RetryPolicy(total_s=240, first_s=0.05, longest_s=1)
    return KubernetesBackend(proxy.cluster, spec, NamespaceSettings.model_validate(SMALL), patience)


def healthy_start(lab: KubernetesLab, proxy: Proxy) -> KubernetesSandbox:
    """A sandbox that was made without a fault; the lab removes it."""
    proxy.faults.on = False
    box = faulty(lab, proxy).create(lab.request())
    lab.sandboxes.append((lab.backend(), box))
    proxy.faults.on = True
    return box


@pytest.mark.parametrize("sort", SORTS)
def test_each_command_runs_exactly_once(lab: KubernetesLab, sort: str) -> None:
    def attempt(box: KubernetesSandbox, number: int) -> tuple[int | None, bytes, bytes]:
        command = f"echo {number} >>/testbed/began; seq {number} {number + 400}; echo e{number} >&2; exit {number % 7}"
        result = box.exec(command, timeout_s=60)
        return result.exit_code, result.stdout, result.stderr

    rates = SORTS[sort]
    faults = Faults(
        SEED, {Kind.EXEC: rates, Kind.PODS: {**rates, Fault.STATUS: 0.0, Fault.LATER: 0.0}}, cuts_late_shells=True
    )
    with Proxy(lab.reached, faults) as proxy:
        box = healthy_start(lab, proxy)
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda number: attempt(box, number), range(TRIES)))
        faults.on = False
        began = box.read("/testbed/began").decode().split()
    counts = Counter(began)
    assert {n for n in range(TRIES) if counts[str(n)] != 1} == set(), faults.describe()
    expected = [
        (n % 7, "".join(f"{i}\n" for i in range(n, n + 401)).encode(), f"e{n}\n".encode()) for n in range(TRIES)
    ]
    assert results == expected, faults.describe()
    met = {fault: faults.met[Kind.EXEC, fault] for fault in rates}
    assert min(met.values()) >= 2, faults.describe()
    assert sum(met.values()) >= TRIES * 0.2, faults.describe()


def test_files_arrive_complete(lab: KubernetesLab) -> None:
    faults = Faults(SEED, {Kind.EXEC: {**EXEC_RATES, Fault.LATER: 0.3}})  # no large file would pass, but by chance
    with Proxy(lab.reached, faults) as proxy:
        box = healthy_start(lab, proxy)
        for size in (0, 1, 100_000, 5_000_000):
            data = secrets.token_bytes(size)
            for _ in range(3):
                box.write("/testbed/file", data)
                assert box.read("/testbed/file") == data, faults.describe()
                proxy.cut_lines()  # a shell that stays open meets no fault
    assert faults.met.total() >= 8, faults.describe()


def test_sandboxes_are_made_once(lab: KubernetesLab) -> None:
    count = 16
    faults = Faults(SEED, {Kind.PODS: POD_RATES, Kind.WATCH: POD_RATES})
    before = lab.pods()
    with Proxy(lab.reached, faults) as proxy:
        backend = faulty(lab, proxy)
        requests = [lab.request() for _ in range(count)]
        with ThreadPoolExecutor(4) as pool:
            boxes = list(pool.map(backend.create, requests))
            assert sorted(lab.pods()) == sorted([*before, *(request.name for request in requests)]), faults.describe()
            assert all(box.exec("true", timeout_s=60).exit_code == 0 for box in boxes), faults.describe()
            list(pool.map(backend.destroy, boxes))
            list(pool.map(backend.destroy, boxes))
    assert sorted(lab.pods()) == sorted(before), faults.describe()
    met = {fault: faults.met[Kind.PODS, fault] + faults.met[Kind.WATCH, fault] for fault in POD_RATES}
    assert min(met.values()) >= 1, faults.describe()
    assert faults.met[Kind.PODS, Fault.AFTER] >= 3, faults.describe()
