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


def is_orphan(of: dict[str, Any]) -> bool:
    return is_orphaned(of, NOW, grace_s=600, new_s=60)


def test_timely_pod_is_no_orphan() -> None:
    assert not is_orphan(pod(5000, deadline_s=6000, phase="Running"))
    assert not is_orphan(pod(5000, phase="Running"))


def test_pod_past_deadline_is_an_orphan() -> None:
    assert is_orphan(pod(7000, deadline_s=6000, phase="Running"))


def test_deadline_has_a_minutes_grace() -> None:
    assert not is_orphan(pod(6030, deadline_s=6000, phase="Running"))


def test_deadline_counts_from_pod_start() -> None:
    assert not is_orphan(pod(7000, deadline_s=6000, phase="Running", startTime=timestamp(NOW - 5900)))
    assert is_orphan(pod(9000, deadline_s=6000, phase="Running", startTime=timestamp(NOW - 6100)))


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_ended_pod_is_orphaned_later(phase: str) -> None:
    def ended(ago_s: float) -> dict[str, Any]:
        state = {"state": {"terminated": {"finishedAt": timestamp(NOW - ago_s)}}}
        return pod(5000, phase=phase, containerStatuses=[state])

    assert not is_orphan(ended(10))
    assert is_orphan(ended(700))
    assert is_orphan(pod(5000, phase=phase, reason="Evicted"))


def test_old_unowned_pod_is_an_orphan() -> None:
    assert not is_orphan(pod(500, {}, phase="Running"))
    assert is_orphan(pod(700, {}, phase="Running"))
