from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.data import Patch
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.verdict import GradeRecord, InstanceLog, Outcome, Report, TestLog
from swe_argo.steps.reports.official.run_summary import official_name, official_summary
from swe_argo.steps.reports.reading import read_run
from swe_argo.steps.store import Store
from tests.steps.reports.synthetic import Synthetic

OFFICIAL_FILES = (Report.file, TestLog.file, InstanceLog.file)
MODEL = "lab/model-1"


def theirs(store: Store, folder: Path, attempt: int, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """What swebench writes of the same files, in the tree of folders it keeps them in."""
    reporting = pytest.importorskip("swebench.harness.reporting")
    monkeypatch.chdir(folder)
    logs = Path("logs/run_evaluation/synthetic") / MODEL.replace("/", "__")
    view = read_run(store, "synthetic")
    rows, predictions = [], {}
    for unit in view.attempt(attempt):
        rows.append({"instance_id": unit.instance_id})
        if unit.patch is not None:
            text = unit.patch.decode(errors="surrogateescape")
            predictions[unit.instance_id] = {
                "instance_id": unit.instance_id,
                "model_name_or_path": MODEL,
                "model_patch": text,
            }
        for name in OFFICIAL_FILES:
            source = f"runs/synthetic/units/{unit.instance_id}/{attempt}/{name}"
            if content := store.get_many([source]):
                (logs / unit.instance_id).mkdir(parents=True, exist_ok=True)
                (logs / unit.instance_id / name).write_bytes(content[source])
    written: Path = reporting.make_run_report(predictions, rows, "synthetic", report_dir="out")
    assert written.name == official_name(MODEL, "synthetic", 1)
    return written.read_bytes()


def ours(store: Store, attempt: int = 1) -> bytes:
    return official_summary(read_run(store, "synthetic").attempt(attempt))


@pytest.mark.parametrize("seed", [1, 2])
def test_summary_equals_swebench(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    Synthetic(instances=200, attempts=2, seed=seed, model=MODEL).write(store)
    for attempt in (1, 2):
        (folder := tmp_path / str(attempt)).mkdir()
        summary = ours(store, attempt)
        assert summary == theirs(store, folder, attempt, monkeypatch)
        report = json.loads(summary)
        assert len(report) == 20
        assert min(len(report[k]) for k in ("resolved_ids", "unresolved_ids", "error_ids", "incomplete_ids")) > 0
        assert report["empty_patch_ids"]
        assert set(report["failure_reasons"].values()) >= {"out_of_memory", "tests_timed_out"}


def test_hostile_logs_equal_swebench(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Synthetic(instances=40, hostile=True, model=MODEL).write(store)
    assert ours(store) == theirs(store, tmp_path, 1, monkeypatch)


def write_unit(store: Store, files: dict[Any, bytes]) -> None:
    """A run of one unit with exactly these files."""
    plan = Synthetic(instances=1, mix={"not_run": 1}, model=MODEL).write(store)
    unit = plan.units[0]
    store.delete_many(store.keys(f"runs/synthetic/units/{unit.instance_id}/"))
    for kind, data in files.items():
        store.put(key(kind, "synthetic", unit.instance_id, 1), data.replace(b"ID", unit.instance_id.encode()))


PATCH = b"diff --git a/a b/a\n"
VERDICT: Callable[[str], bytes] = lambda resolved: b'{"ID": {"resolved": %s}}' % resolved.encode()  # noqa: E731
CASES: dict[str, tuple[dict[Any, bytes], str]] = {
    "no patch file": ({}, "incomplete_ids"),
    "empty patch": ({Patch: b""}, "empty_patch_ids"),
    "blank patch is run": ({Patch: b"\n", Report: VERDICT("false")}, "unresolved_ids"),
    "resolved": ({Patch: PATCH, Report: VERDICT("true")}, "resolved_ids"),
    "no report": ({Patch: PATCH}, "error_ids"),
    "empty report": ({Patch: PATCH, Report: b""}, "error_ids"),
    "blank report": ({Patch: PATCH, Report: b" \n"}, "error_ids"),
    "cut report": ({Patch: PATCH, Report: b'{"ID": {"res'}, "error_ids"),
    "report of another": ({Patch: PATCH, Report: b'{"other": {"resolved": true}}'}, "error_ids"),
    "report without verdict": ({Patch: PATCH, Report: b'{"ID": {}}'}, "error_ids"),
    "resolved null": ({Patch: PATCH, Report: VERDICT("null")}, "unresolved_ids"),
    "killed": ({Patch: PATCH, TestLog: b"a\nKilled\n"}, "infra_failure_ids"),
    "killed after a lone carriage return": ({Patch: PATCH, TestLog: b"50%\rKilled\r100%"}, "infra_failure_ids"),
    "killed before a carriage return": ({Patch: PATCH, TestLog: b"a\r\nKilled\r\nb"}, "infra_failure_ids"),
    "killed inside a line": ({Patch: PATCH, TestLog: b"was Killed\n"}, "error_ids"),
    "killed across the two logs": ({Patch: PATCH, TestLog: b"Kil", InstanceLog: b"led"}, "error_ids"),
    "last line of one, first of the other": ({Patch: PATCH, TestLog: b"x\nKilled", InstanceLog: b"y"}, "error_ids"),
    "engine": ({Patch: PATCH, InstanceLog: b"Error response from daemon: x"}, "infra_failure_ids"),
    "ambiguous": ({Patch: PATCH, Report: VERDICT("false"), TestLog: b"collected 0 items"}, "ambiguous_failure_ids"),
    "first signature wins": (
        {Patch: PATCH, Report: VERDICT("false"), TestLog: b"no tests ran\nCould not resolve host"},
        "infra_failure_ids",
    ),
    "resolved is not classified": ({Patch: PATCH, Report: VERDICT("true"), TestLog: b"no tests ran"}, "resolved_ids"),
    "empty patch is not classified": ({Patch: b"", TestLog: b"no tests ran"}, "empty_patch_ids"),
    "not UTF-8": ({Patch: PATCH + b"+\xff\xfe\n", TestLog: b"\xff\xfe\x00Killed\n"}, "error_ids"),
}


@pytest.mark.parametrize("name", CASES)
def test_summary_lists_each_outcome(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    files, listed = CASES[name]
    write_unit(store, files)
    summary = ours(store)
    assert len(json.loads(summary)[listed]) == 1
    if Patch not in files:  # without any prediction swebench has no name for the file and raises
        return
    assert summary == theirs(store, tmp_path, 1, monkeypatch)


def test_idle_counts_as_empty_patch(store: Store) -> None:
    write_unit(store, {Patch: b"", Report: VERDICT("false")})
    unit = read_run(store, "synthetic").units[0]
    grade = GradeRecord.model_validate(
        {
            "instance_id": unit.instance_id,
            "attempt": 1,
            "outcome": Outcome.UNRESOLVED,
            "resolved": False,
            "integrity": {"verdict": "ok"},
            "patch_sha256": hashlib.sha256(b"").hexdigest(),
            "versions": {},
        }
    )
    store.put(key(GradeRecord, "synthetic", unit.instance_id, 1), grade.to_bytes())
    assert json.loads(ours(store))["empty_patch_ids"] == [unit.instance_id]
    assert read_run(store, "synthetic").units[0].standing == "unresolved"
