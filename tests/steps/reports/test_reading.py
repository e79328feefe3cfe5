from __future__ import annotations

import pytest

from swe_argo.steps.contracts.data import Patch, Plan, RunFile
from swe_argo.steps.contracts.failure import Failure, FailureClass
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.solve_record import SolveRecord
from swe_argo.steps.contracts.trajectory import Usage
from swe_argo.steps.contracts.verdict import GradeRecord, TestLog
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.reports.reading import SHOWN_TESTS, TAIL_LINES, read_run
from swe_argo.steps.reports.stored_run import Standing
from swe_argo.steps.store import Store
from tests.steps.reports.synthetic import Synthetic

RUN = "synthetic"


def write_unit(store: Store, standing: str) -> str:
    """Write a run of one unit and return its instance."""
    return Synthetic(instances=1, mix={standing: 1}, seed=5).write(store).units[0].instance_id


def fail(store: Store, instance: str, name: str, at: str = "22:00:00", **changes: object) -> None:
    values = {"step": "solve", "instance_id": instance, "attempt": 1, "reason": name, "exit_code": 75}
    values |= {"failure_class": FailureClass.IMAGE_PULL, "occurred_at": f"2026-11-20T{at}Z"}
    store.put(key(Failure, RUN, instance, 1, name), Failure.model_validate(values | changes).to_bytes())


@pytest.mark.parametrize("standing", [s for s in Standing if s is not Standing.NO_PREDICTION])
def test_standing_follows_stored_files(store: Store, standing: str) -> None:
    write_unit(store, standing)
    assert read_run(store, RUN).units[0].standing == standing


def test_newest_failure_decides_standing(store: Store) -> None:
    instance = write_unit(store, "not_run")
    fail(store, instance, "b", at="22:00:02", failure_class=FailureClass.OUT_OF_MEMORY)
    fail(store, instance, "a", at="22:00:03", failure_class=FailureClass.STORAGE)
    fail(store, instance, "c", at="22:00:01")
    unit = read_run(store, RUN).units[0]
    assert unit.standing is Standing.FAILED
    assert unit.failure is not None
    assert unit.failure.failure_class is FailureClass.STORAGE
    assert [failed_try.failure.reason for failed_try in unit.tries] == ["c", "b", "a"]


def test_failed_solve_can_be_outdated(store: Store) -> None:
    instance = write_unit(store, "unresolved")
    store.delete_many([key(GradeRecord, RUN, instance, 1)])
    fail(store, instance, "first")
    assert read_run(store, RUN).units[0].standing is Standing.NOT_RUN
    fail(store, instance, "second", step="grade", at="23:00:00")
    assert read_run(store, RUN).units[0].standing is Standing.FAILED


def test_verdict_outranks_failures(store: Store) -> None:
    instance = write_unit(store, "resolved")
    fail(store, instance, "first", usage=Usage(calls=2, cost_usd=0.5), seconds=40.0)
    unit = read_run(store, RUN).units[0]
    assert (unit.standing, unit.failure) == (Standing.RESOLVED, None)
    assert unit.usage.calls == 31 + 2
    assert unit.usage.cost_usd == pytest.approx(0.37 + 0.5)
    assert unit.total_s == pytest.approx(sum(unit.seconds.values()) + 40)


def test_read_run_bounds_tests_and_log(store: Store) -> None:
    instance = write_unit(store, "unresolved")
    grade = GradeRecord.from_bytes(store.get(key(GradeRecord, RUN, instance, 1)))
    many = grade.model_copy(update={"failing_tests": [f"t{n}" for n in range(3000)]})
    store.put(key(GradeRecord, RUN, instance, 1), many.to_bytes())
    store.put(key(TestLog, RUN, instance, 1), b"line\n" * 1_000_000)
    unit = read_run(store, RUN).units[0]
    assert unit.grade is not None
    assert len(unit.grade.failing_tests) == SHOWN_TESTS
    assert unit.failing_tests == 3000
    assert len(unit.log_tail.lines) == TAIL_LINES
    assert unit.log_tail.left_out == 1_000_000 - TAIL_LINES


def test_unreadable_record_is_named(store: Store) -> None:
    instance = write_unit(store, "resolved")
    broken = [key(GradeRecord, RUN, instance, 1), key(SolveRecord, RUN, instance, 1)]
    store.put(broken[0], b'{"instance_id": ')
    store.put(broken[1], b'{"unknown": 1}')
    view = read_run(store, RUN)
    assert sorted(view.unreadable) == broken
    assert view.units[0].standing is Standing.NOT_RUN
    assert view.units[0].patch is not None


def test_read_run_ignores_unplanned_units(store: Store) -> None:
    write_unit(store, "resolved")
    store.put(f"runs/{RUN}/units/other__other-1/1/{Patch.file}", b"x")
    store.put(f"runs/{RUN}/units/stray.txt", b"x")
    assert len(read_run(store, RUN).units) == 1
    store.delete_many([key(Plan, RUN)])
    view = read_run(store, RUN)
    assert (view.plan, view.units) == (None, [])


def test_read_run_refuses_unusable_run(store: Store) -> None:
    with pytest.raises(ConfigError, match=r"there is no run 'nothing': .*runs/nothing/run\.json is missing"):
        read_run(store, "nothing")
    store.put(key(RunFile, "broken"), b"{")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_run(store, "broken")
