"""Orphaned pods, and the Leases of runners that own pods."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from swe_argo.steps.host.folders import process_owner
from swe_argo.steps.kube.requests import Plain, parse_time, timestamp
from swe_argo.steps.sandbox.kubernetes.lease import PROCESS, is_over, lease_name
from swe_argo.steps.sandbox.kubernetes.orphans import is_orphaned

NOW = 1_800_000_000.0
OWNED = {"ownerReferences": [{"kind": "Lease", "name": "x", "uid": "u"}]}


def pod(age_s: float, deadline_s: int | None = 6000, meta: dict[str, Any] = OWNED, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "sb-x", "creationTimestamp": timestamp(NOW - age_s), **meta},
        "spec": {} if deadline_s is None else {"activeDeadlineSeconds": deadline_s},
        "status": {"phase": "Running", **status},
    }


def ended(phase: str, ago_s: float) -> dict[str, Any]:
    state = {"state": {"terminated": {"finishedAt": timestamp(NOW - ago_s)}}}
    return pod(5000, None, phase=phase, containerStatuses=[state])


def is_orphan(status: dict[str, Any]) -> bool:
    return is_orphaned(status, NOW, grace_s=600, new_s=60)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (pod(5000), False),
        (pod(5000, None), False),
        (pod(6030), False),
        (pod(7000), True),
        (pod(7000, startTime=timestamp(NOW - 5900)), False),
        (pod(9000, startTime=timestamp(NOW - 6100)), True),
        *[(ended(phase, ago_s), ago_s > 600) for phase in ("Succeeded", "Failed") for ago_s in (10, 700)],
        (pod(5000, None, phase="Failed", reason="Evicted"), True),
        (pod(500, None, {}), False),
        (pod(700, None, {}), True),
    ],
)
def test_orphan_is_late_or_ended_or_unowned(status: dict[str, Any], expected: bool) -> None:
    assert is_orphan(status) is expected


def test_lease_names_are_legal_and_unique() -> None:
    runs = ["a", "A", "a.b", "a_b", "a-b", "A-b", "a-B", *["x" * size for size in (50, 51, 62, 63)], "X" * 63]
    names = {lease_name(run) for run in (*runs, "x" * 62 + "y")}
    assert len(names) == len(runs) + 1
    assert all(re.fullmatch(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", name) for name in names)
    assert lease_name("nightly-1") == "swe-argo-nightly-1"


def lease(renewed_ago_s: float, process: str = "elsewhere:1:1", duration_s: int = 60) -> Plain:
    return {
        "metadata": {"name": "swe-argo-x", "uid": "u", "annotations": {PROCESS: process}},
        "spec": {"renewTime": timestamp(time.time() - renewed_ago_s), "leaseDurationSeconds": duration_s},
    }


def test_lease_ends_after_two_durations() -> None:
    assert [is_over(lease(ago_s)) for ago_s in (0, 110, 130)] == [False, False, True]
    assert is_over(lease(5, duration_s=2))


def test_lease_ends_with_its_process() -> None:
    machine, pid, began = process_owner().split(":")
    earlier = int(began) - 1
    assert not is_over(lease(0, process_owner()))
    assert is_over(lease(0, f"{machine}:{pid}:{earlier}"))
    assert not is_over(lease(0, f"{machine}x:{pid}:{earlier}"))


def test_bare_lease_uses_creation_time() -> None:
    bare = {"metadata": {"name": "swe-argo-x", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}
    born = parse_time("2026-01-01T00:00:00Z")
    assert born is not None
    assert not is_over(bare, born + 119)
    assert is_over(bare, born + 121)


def test_timestamps_round_trip() -> None:
    assert parse_time(timestamp(1_700_000_000.123456)) == pytest.approx(1_700_000_000.123456)
    assert parse_time("2023-11-14T22:13:20Z") == 1_700_000_000
    assert parse_time(None) is None
