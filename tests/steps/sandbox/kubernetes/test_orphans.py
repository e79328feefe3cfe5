"""Which pods are orphaned by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from swe_argo.steps.kube.requests import timestamp
from swe_argo.steps.sandbox.kubernetes.orphans import is_orphaned

NOW = 1_800_000_000.0
OWNED = {"ownerReferences": [{"kind": "Lease", "name": "x", "uid": "u"}]}


def pod(age_s: float, meta: dict[str, Any] = OWNED, deadline_s: int | None = None, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "sb-x", "creationTimestamp": timestamp(NOW - age_s), **meta},
        "spec": {} if deadline_s is None else {"activeDeadlineSeconds": deadline_s},
        "status": status,
    }


def stray(of: dict[str, Any]) -> bool:
    return is_orphaned(of, NOW, grace_s=600, new_s=60)


def test_an_owned_pod_that_runs_within_its_deadline_is_none() -> None:
    assert not stray(pod(5000, deadline_s=6000, phase="Running"))
    assert not stray(pod(5000, phase="Running"))


def test_a_pod_past_its_deadline_is_one() -> None:
    assert stray(pod(7000, deadline_s=6000, phase="Running"))


def test_clocks_may_differ_by_a_minute() -> None:
    assert not stray(pod(6030, deadline_s=6000, phase="Running"))


def test_the_deadline_counts_from_when_a_kubelet_took_the_pod() -> None:
    assert not stray(pod(7000, deadline_s=6000, phase="Running", startTime=timestamp(NOW - 5900)))
    assert stray(pod(9000, deadline_s=6000, phase="Running", startTime=timestamp(NOW - 6100)))


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_ended_is_one_when_its_owner_had_time_to_look(phase: str) -> None:
    def ended(ago_s: float) -> dict[str, Any]:
        state = {"state": {"terminated": {"finishedAt": timestamp(NOW - ago_s)}}}
        return pod(5000, phase=phase, containerStatuses=[state])

    assert not stray(ended(10))
    assert stray(ended(700))
    assert stray(pod(5000, phase=phase, reason="Evicted"))


def test_a_pod_that_nobody_owns_is_one_when_it_is_old() -> None:
    assert not stray(pod(500, {}, phase="Running"))
    assert stray(pod(700, {}, phase="Running"))
