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
def test_every_run_id_has_a_legal_name(run: str) -> None:
    assert LEGAL.fullmatch(lease_name(run))


def test_a_plain_run_id_stands_in_its_name() -> None:
    assert lease_name("nightly-1") == "swe-argo-nightly-1"


def test_runs_that_differ_have_leases_that_differ() -> None:
    runs = ["a.b", "a_b", "a-b", "A-b", "a-B", "x" * 62, "x" * 63, "X" * 63, "x" * 62 + "y"]
    assert len({lease_name(run) for run in runs}) == len(runs)


def lease(renewed_ago_s: float, process: str = "elsewhere:1:1", duration_s: int = 60) -> Plain:
    return {
        "metadata": {"name": "swe-argo-x", "uid": "u", "annotations": {PROCESS: process}},
        "spec": {"renewTime": timestamp(time.time() - renewed_ago_s), "leaseDurationSeconds": duration_s},
    }


def test_a_lease_is_over_after_twice_its_duration() -> None:
    assert not is_over(lease(0))
    assert not is_over(lease(115))
    assert is_over(lease(125))
    assert is_over(lease(5, duration_s=2))


def test_a_lease_of_a_dead_process_of_this_machine_is_over_at_once() -> None:
    machine, pid, began = process_owner().split(":")
    earlier = int(began) - 1
    assert not is_over(lease(0, process_owner()))
    assert is_over(lease(0, f"{machine}:{pid}:{earlier}"))
    assert not is_over(lease(0, f"{machine}x:{pid}:{earlier}"))


def test_a_lease_without_times_is_as_old_as_its_object() -> None:
    bare = {"metadata": {"name": "swe-argo-x", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}
    born = moment("2026-01-01T00:00:00Z")
    assert born is not None
    assert not is_over(bare, born + 119)
    assert is_over(bare, born + 121)


def test_times_are_read_as_they_are_written() -> None:
    assert moment(timestamp(1_700_000_000.123456)) == pytest.approx(1_700_000_000.123456)
    assert moment("2023-11-14T22:13:20Z") == 1_700_000_000
    assert moment(None) is None
