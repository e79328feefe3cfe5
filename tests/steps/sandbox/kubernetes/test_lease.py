"""Names of Leases, and when nobody holds one any more."""

from __future__ import annotations

import re
import time

import pytest

from swe_argo.steps.host.folders import process_owner
from swe_argo.steps.kube.requests import Plain, moment, timestamp
from swe_argo.steps.sandbox.kubernetes.lease import PROCESS, is_over, lease_name

LEGAL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


@pytest.mark.parametrize("run", ["a", "nightly-1", "A", "a.b", "a_b", "a-b", "x" * 63, "X" * 63, "x" * 50, "x" * 51])
def test_lease_name_is_legal(run: str) -> None:
    assert LEGAL.fullmatch(lease_name(run))


def test_lease_name_contains_the_run_id() -> None:
    assert lease_name("nightly-1") == "swe-argo-nightly-1"


def test_lease_names_are_unique() -> None:
    runs = ["a.b", "a_b", "a-b", "A-b", "a-B", "x" * 62, "x" * 63, "X" * 63, "x" * 62 + "y"]
    assert len({lease_name(run) for run in runs}) == len(runs)


def lease(renewed_ago_s: float, process: str = "elsewhere:1:1", duration_s: int = 60) -> Plain:
    return {
        "metadata": {"name": "swe-argo-x", "uid": "u", "annotations": {PROCESS: process}},
        "spec": {"renewTime": timestamp(time.time() - renewed_ago_s), "leaseDurationSeconds": duration_s},
    }


def test_lease_ends_after_two_durations() -> None:
    assert not is_over(lease(0))
    assert not is_over(lease(115))
    assert is_over(lease(125))
    assert is_over(lease(5, duration_s=2))


def test_lease_ends_with_its_process() -> None:
    machine, pid, began = process_owner().split(":")
    earlier = int(began) - 1
    assert not is_over(lease(0, process_owner()))
    assert is_over(lease(0, f"{machine}:{pid}:{earlier}"))
    assert not is_over(lease(0, f"{machine}x:{pid}:{earlier}"))


def test_bare_lease_uses_creation_time() -> None:
    bare = {"metadata": {"name": "swe-argo-x", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}
    born = moment("2026-01-01T00:00:00Z")
    assert born is not None
    assert not is_over(bare, born + 119)
    assert is_over(bare, born + 121)


def test_timestamps_round_trip() -> None:
    assert moment(timestamp(1_700_000_000.123456)) == pytest.approx(1_700_000_000.123456)
    assert moment("2023-11-14T22:13:20Z") == 1_700_000_000
    assert moment(None) is None
