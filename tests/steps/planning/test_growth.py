"""Planning a run again with more or other rows."""

from __future__ import annotations

from typing import Any

import pytest

from swe_argo.steps.contracts.data import Answer, DatasetLock, Plan, RunFile, Stage, Unit
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.rows import digest_rows
from swe_argo.steps.planning.growth import check_rows
from swe_argo.steps.store import Store

ROWS = [{"instance_id": f"o__r-{number}", "text": "t"} for number in range(4)]
SPEC = RunSpec(run_id="r")


def lock(rows: list[dict[str, Any]], name: str = "d") -> DatasetLock:
    return DatasetLock(name=name, split="test", revision=None, rows=len(rows), sha256=digest_rows(rows))


def planned(store: Store, rows: list[dict[str, Any]], recorded: list[dict[str, Any]] | None = None) -> RunFile:
    """Store a run with these rows; ``recorded``: those of its run.json, if its planning was killed."""
    units = [Unit(instance_id=row["instance_id"], attempt=1, begins=Stage.SOLVE, repo="o/r", image="i") for row in rows]
    store.put(key(Plan, "r"), Plan(run_id="r", units=units).to_bytes())
    for row in recorded or rows:
        answer = Answer(instance_id=row["instance_id"], row_sha256=digest_rows([row]))
        store.put(key(Answer, "r", row["instance_id"]), answer.to_bytes())
    dataset = lock(recorded or rows)
    return RunFile(run_id="r", spec=SPEC, dataset=dataset, model="m", versions={}, created_at="2026-11-20T22:04:11")


def check(store: Store, before: RunFile, rows: list[dict[str, Any]], name: str = "d") -> None:
    check_rows(before, SPEC, lock(rows, name), rows, store)


def test_growth_accepts_more_rows(store: Store) -> None:
    before = planned(store, ROWS[:2])
    check(store, before, ROWS[:2])
    check(store, before, ROWS[::-1])
    check(store, planned(store, ROWS[:2], ROWS[:3]), ROWS)  # its planning was killed


@pytest.mark.parametrize(
    ("rows", "name", "reason"),
    [
        (ROWS[1:], "d", "has 1 instance that the spec no longer selects, o__r-0"),
        ([ROWS[0] | {"text": "u"}, *ROWS[1:]], "d", r"rows of d changed since run 'r' began \(o__r-0\)"),
        (ROWS, "other", "rows of other changed since run 'r' began"),
    ],
    ids=["fewer", "changed", "another dataset"],
)
def test_growth_refuses_changed_rows(store: Store, rows: list[dict[str, Any]], name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        check(store, planned(store, ROWS[:2]), rows, name)
