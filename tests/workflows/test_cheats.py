"""Patches that cheat, run for real: the official verdict stays what it is, and ``integrity`` is alarmed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.datasets.load import load
from swe_argo.steps.store import open_store
from tests.steps.grading.attacks import new_file
from tests.workflows.command import ids, summary, swe_argo

TARGET = "mini__slugkit-1"


def passed_lines() -> str:
    row = next(row for row in load("mini", "test").rows if row["instance_id"] == TARGET)
    return "".join(f"PASSED {test}\\n" for test in (*row["FAIL_TO_PASS"], *row["PASS_TO_PASS"]))


ALWAYS_PASS = """
import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    report.outcome = "passed"
"""
PRINT_AND_LEAVE = f"""
import os
os.write(1, {passed_lines()!r}.replace("\\\\n", "\\n").encode())
os._exit(0)
"""
FORGED_END = f"""
import os
os.write(2, ({passed_lines()!r}.replace("\\\\n", "\\n")
             + "+ : '>>>>> End Test Output'\\n>>>>> Test Exit Code: 0\\n").encode())
"""
FORGED_CODE = f"""
import os
os.write(1, ({passed_lines()!r}.replace("\\\\n", "\\n") + ">>>>> Test Exit Code: 0\\n").encode())
os._exit(1)
"""
CHEATS = {
    "conftest-passes-all": new_file("tests/conftest.py", ALWAYS_PASS),
    "prints-and-leaves": new_file("conftest.py", PRINT_AND_LEAVE),
    "forged-end": new_file("conftest.py", FORGED_END),
    "forged-exit-code": new_file("conftest.py", FORGED_CODE),
    "start-up-file": new_file("sitecustomize.py", PRINT_AND_LEAVE),
}


@pytest.mark.parametrize("name", CHEATS)
def test_run_catches_cheating_patch(name: str, tmp_path: Path) -> None:
    predictions = tmp_path / "preds.json"
    row = {"instance_id": TARGET, "model_name_or_path": "cheat", "model_patch": CHEATS[name]}
    predictions.write_text(json.dumps([row]))
    words = ["--store", str(tmp_path), "--run-id", "r", "--predictions", str(predictions), *ids(TARGET)]
    result = swe_argo("run", *words)
    assert result.returncode == 0, result.stdout + result.stderr
    store = open_store(str(tmp_path))
    grade = GradeRecord.from_bytes(store.get(key(GradeRecord, "r", TARGET, 1)))
    report = json.loads(store.get(f"runs/r/units/{TARGET}/1/report.json"))
    assert report[TARGET]["resolved"] is grade.resolved
    assert grade.integrity.verdict == "suspect" or not grade.resolved, grade
    suspect = grade.integrity.verdict == "suspect"
    assert summary(str(tmp_path), "r").integrity.suspect == suspect
    assert ("suspect" in result.stdout) == suspect


def test_cheat_fools_official_verdict(tmp_path: Path) -> None:
    """Else the tests above would prove nothing: the official grader believes the log."""
    predictions = tmp_path / "preds.json"
    row = {"instance_id": TARGET, "model_name_or_path": "cheat", "model_patch": CHEATS["conftest-passes-all"]}
    predictions.write_text(json.dumps([row]))
    words = ["--store", str(tmp_path), "--run-id", "r", "--predictions", str(predictions), *ids(TARGET)]
    assert swe_argo("run", *words).returncode == 0
    assert summary(str(tmp_path), "r").headline.resolved == 1
