"""Flips of tests in ``flakes.parquet``, and the gradings that they are counted from."""

from __future__ import annotations

import io
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.redone import Redone, archive_name
from swe_argo.steps.contracts.verdict import Confirmation, ConfirmationOutcome, Finding, GradeRecord, Integrity, Outcome
from swe_argo.steps.reports.flaky_tests import (
    LEDGER,
    Grading,
    count_flips,
    find_gradings,
    gradings_key,
    read_flips,
    read_gradings,
    record_flips,
    write_gradings,
)
from swe_argo.steps.reports.reading import read_verdicts
from swe_argo.steps.reports.stored_run import CanaryResult, StoredRun
from swe_argo.steps.store import Store, open_store
from tests.steps.reports.synthetic import Synthetic

DATASET = "SWE-bench/SWE-bench_Verified"


def gradings(*failing: Iterable[str], patch: str = "p", one: str = "i") -> list[Grading]:
    return [Grading("d", one, patch, f"2026-01-0{n}", frozenset(tests)) for n, tests in enumerate(failing, 1)]


def counts(*lists: list[Grading]) -> dict[str, tuple[int, int]]:
    return {test: (flip.gradings, flip.flipped) for (_, _, test), flip in count_flips(chain(*lists)).items()}


def test_flip_needs_equal_patch() -> None:
    assert counts(gradings([], ["t"], [])) == {"t": (3, 1)}
    assert counts(gradings(["t"], ["t"], ["t"])) == {}
    assert counts(gradings([], patch="a"), gradings(["t"], patch="b")) == {}, "two patches are two things"
    assert counts(gradings([], one="a"), gradings(["t"], one="b")) == {}, "and so are two instances"


def test_flipped_test_counts_gradings() -> None:
    steady, flipping = gradings([], [], [], patch="a"), gradings(["t", "u"], ["t"], patch="b")
    assert counts(steady, flipping, gradings(["t"], patch="c")) == {"u": (5, 1)}


def test_gradings_round_trip_unless_damaged() -> None:
    some = gradings([], ["t", "ü"], patch="patch")
    whole = write_gradings(some)
    assert read_gradings(whole) == some
    damaged = [whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :] for place in range(0, len(whole), 3)]
    assert [] in [read_gradings(data) for data in damaged], "and none of them raises"
    columns = {name: [None] for name in ("dataset", "instance_id", "patch_sha256", "seen_at", "failing")}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    assert read_gradings(sink.getvalue()) == []


def stored(store: Store, run: str, grades: list[GradeRecord], agent: str = "gold") -> StoredRun:
    """Store a run of one instance with these grades of its attempts."""
    plan = Synthetic(run_id=run, instances=1, attempts=len(grades), mix={"resolved": 1}, agent=agent).write(store)
    for unit, grade in zip(plan.units, grades, strict=True):
        update = {"instance_id": unit.instance_id, "attempt": unit.attempt}
        name = key(GradeRecord, run, unit.instance_id, unit.attempt)
        store.put(name, grade.model_copy(update=update).to_bytes())
    return read_verdicts(store, run)


def grade(*failing: str, suspect: bool = False, flipped: list[str] | None = None) -> GradeRecord:
    findings = [Finding(code="x", detail="y")] if suspect else []
    confirmation = Confirmation(outcome=ConfirmationOutcome.FLAKY, flipped=flipped) if flipped else None
    return GradeRecord(
        instance_id="",
        attempt=1,
        outcome=Outcome.UNRESOLVED if failing else Outcome.RESOLVED,
        resolved=not failing,
        failing_tests=list(failing),
        integrity=Integrity(verdict="suspect" if suspect else "ok", findings=findings),
        confirmation=confirmation,
        patch_sha256="p",
        versions={},
    )


def test_gradings_exclude_suspect_logs(store: Store) -> None:
    broken = grade(*(f"t{n}" for n in range(300)))
    run = stored(store, "r", [grade(flipped=["t"]), grade("t", suspect=True), broken])
    assert [sorted(grading.failing) for grading in find_gradings(run)] == [[]]


@pytest.mark.parametrize(("agent", "added"), [("gold", 2), ("idle", 2), ("given", 0), ("r2egym", 0), ("replay", 0)])
def test_gradings_need_known_patches(store: Store, agent: str, added: int) -> None:
    run = stored(store, "r", [grade(), grade("t")], agent)
    assert len(list(find_gradings(run))) == added
    run.canary = CanaryResult(resolved=["i"], failed={}, without_verdict={}, grades=[grade()])
    assert len(list(find_gradings(run))) == added + 1


def test_agent_report_drops_gradings(store: Store) -> None:
    store.put(gradings_key("r"), write_gradings(gradings([], ["t"])))
    assert record_flips(store, stored(store, "r", [grade(), grade("t")], "given")) == {}
    assert read_gradings(store.get(gradings_key("r"))) == []


def test_archived_verdict_counts_once(store: Store) -> None:
    view = stored(store, "r", [grade("t")])
    (unit,) = view.units
    assert unit.grade is not None
    (name,) = [item for item in store.keys("runs/r/units/") if item.endswith("/grade.json")]
    old = store.get(name)
    place = name.replace("grade.json", f"tries/{archive_name(old)}/")
    redone = Redone(
        instance_id=unit.instance_id, attempt=1, outcome=unit.grade.outcome, stop_reason=None, requested="r", at="now"
    )
    store.put_many({f"{place}grade.json": old, f"{place}redone.json": redone.to_bytes()})
    assert [sorted(item.failing) for item in find_gradings(read_verdicts(store, "r"))] == [["t"]]
    store.put(name, unit.grade.model_copy(update={"failing_tests": []}).to_bytes())
    again = read_verdicts(store, "r")
    assert [sorted(item.failing) for item in find_gradings(again)] == [["t"], []]
    assert {test: flip.flipped for flips in record_flips(store, again).values() for test, flip in flips.items()} == {
        "t": 1
    }


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_flips_add_up_over_runs(kind: str, request: pytest.FixtureRequest, store: Store) -> None:
    if kind == "s3":
        store = open_store(f"s3://{request.getfixturevalue('bucket')}/some/prefix", create=True)
    for run, grades in (("a", [grade(), grade("t")]), ("b", [grade()]), ("a", [grade(), grade("t")])):
        view = stored(store, run, grades)
        (flips,) = record_flips(store, view).values()
    assert {test: (flip.gradings, flip.flipped) for test, flip in flips.items()} == {"t": (3, 1)}
    assert read_flips(store, DATASET) == {view.units[0].instance_id: flips}
    assert read_flips(store, "another") == {}
    table = pq.read_table(io.BytesIO(store.get(LEDGER)))
    names = ["dataset", "instance_id", "test", "times_seen", "times_flipped", "last_seen"]
    assert table.column_names == names


def test_concurrent_writers_keep_all_flips(store: Store) -> None:
    views = [stored(store, f"r{n}", [grade(), grade("t"), *[grade()] * n]) for n in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda view: record_flips(store, view), views))
    (flips,) = read_flips(store, DATASET).values()
    assert (flips["t"].gradings, flips["t"].flipped) == (sum(2 + n for n in range(6)), 6)
