"""Marks by which solves in separate pods detect that the model endpoint fails."""

from __future__ import annotations

import pytest

from swe_argo.steps.contracts.failure import Failure, FailureClass
from swe_argo.steps.contracts.trajectory import MALFORMED_REQUEST, StopReason
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.store import Store
from swe_argo.steps.store.endpoint_marks import UnitMarks, read_marks, read_retracted

DIED = ConfigError("the endpoint gives no access", failure_class=FailureClass.MODEL_ACCESS)
PAGE = InfraError(FailureClass.MODEL, "the endpoint failed: 403: <html>")


def solve(store: Store, number: int, reason: StopReason, answers: int, words: str = "") -> None:
    """Store what a pod that solved a unit stores."""
    marks = UnitMarks(store, "r", f"i-{number}", 1)
    marks.begin()
    marks.end(reason, answers, words)
    store.put(f"runs/r/units/i-{number}/1/solve.json", b"{}")


def fails(store: Store, number: int, error: Exception = PAGE) -> FailureClass:
    marks = UnitMarks(store, "r", f"i-{number}", 1)
    marks.begin()
    assert isinstance(error, ConfigError | InfraError)
    return marks.record_failure(error, foreign=error is PAGE).failure_class


def retracted(store: Store) -> dict[str, str]:
    return {unit[0]: mark.kind[:7] for unit, mark in read_retracted(store, "r").items()}


def test_equal_refusals_are_retracted(store: Store) -> None:
    for number in range(6, 9):
        solve(store, number, StopReason.FINISHED, 3)
    for number in range(2):
        solve(store, number, StopReason.REQUEST_REFUSED, 9, "missing signature")
    solve(store, 2, StopReason.REQUEST_REFUSED, 9, "another refusal")
    assert retracted(store) == {}
    with pytest.raises(ConfigError, match=r"3 units with the same message \(missing signature\)") as failed:
        solve(store, 3, StopReason.REQUEST_REFUSED, 9, "missing signature")
    assert failed.value.failure_class is FailureClass.MODEL_ACCESS
    assert retracted(store) == {f"i-{number}": "refused" for number in (0, 1, 3)}


def test_malformed_requests_do_not_count(store: Store) -> None:
    for number in range(4):
        solve(store, number, StopReason.REQUEST_REFUSED, 9, f"{MALFORMED_REQUEST} (a call has no answer); ...")
    assert read_marks(store, "r") == []


def test_last_end_of_unit_counts(store: Store) -> None:
    for _ in range(3):
        solve(store, 0, StopReason.REQUEST_REFUSED, 9, "missing signature")
    solve(store, 0, StopReason.FINISHED, 9)
    assert read_marks(store, "r") == []


def test_solve_stops_without_access(store: Store) -> None:
    assert fails(store, 0, InfraError(FailureClass.SANDBOX_LOST, "gone")) is FailureClass.SANDBOX_LOST
    assert fails(store, 1, DIED) is FailureClass.MODEL_ACCESS
    with pytest.raises(ConfigError, match="not started: the endpoint denied access, first seen at i-1/1") as failed:
        solve(store, 2, StopReason.FINISHED, 3)
    assert failed.value.failure_class is FailureClass.STOPPED


def test_three_failures_lose_access(store: Store) -> None:
    assert [fails(store, number) for number in (0, 1, 1)] == [FailureClass.MODEL] * 3
    solve(store, 2, StopReason.FINISHED, 3)
    assert [fails(store, number) for number in (3, 4)] == [FailureClass.MODEL] * 2, "the row was broken"
    assert fails(store, 5) is FailureClass.MODEL_ACCESS
    with pytest.raises(ConfigError, match="not started"):
        fails(store, 6)


@pytest.mark.parametrize(
    ("reason", "answers", "words"),
    [
        (StopReason.REQUEST_REFUSED, 1, "no such thing"),
        (StopReason.CONTEXT_OVERFLOW, 0, "too long"),
        (StopReason.CONTENT_FILTER, 1, ""),
    ],
)
def test_early_ends_are_retracted(store: Store, reason: StopReason, answers: int, words: str) -> None:
    for number in range(2):
        solve(store, number, reason, answers, f"{words} {number}")
    solve(store, 2, StopReason.FINISHED, 1)
    assert retracted(store) == {"i-0": "early", "i-1": "early"}
    mark = read_retracted(store, "r")["i-1", 1]
    failure = Failure.from_bytes(store.get(mark.key))
    assert (failure.failure_class, failure.instance_id) == (FailureClass.MODEL, "i-1")
    assert f"ended the conversation at turn {answers + 1} ({reason.value})" in failure.reason
    solve(store, 3, reason, 2, "at turn 3")
    solve(store, 4, StopReason.REFUSAL, 0, "the model's own")
    assert retracted(store) == {}
