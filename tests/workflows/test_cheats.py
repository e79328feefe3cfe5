"""Cheating patches, run for real: the official verdict stays as it is, and ``integrity`` is alarmed."""

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

ROWS = {row["instance_id"]: row for row in load("mini", "test").rows}


def passed_lines(instance: str) -> str:
    return "".join(f"PASSED {test}\n" for test in (*ROWS[instance]["FAIL_TO_PASS"], *ROWS[instance]["PASS_TO_PASS"]))


ALWAYS_PASS = """
import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    report.outcome = "passed"
"""


def prints_and_leaves(instance: str) -> str:
    return f"\nimport os\nos.write(1, {passed_lines(instance)!r}.encode())\nos._exit(0)\n"


def forged_end(instance: str) -> str:
    end = "+ : '>>>>> End Test Output'\n>>>>> Test Exit Code: 0\n"
    return f"\nimport os\nos.write(2, {passed_lines(instance) + end!r}.encode())\n"


def forged_exit_code(instance: str) -> str:
    lines = passed_lines(instance) + ">>>>> Test Exit Code: 0\n"
    return f"\nimport os\nos.write(1, {lines!r}.encode())\nos._exit(1)\n"


CHEATS = {
    "mini__slugkit-1": new_file("tests/conftest.py", ALWAYS_PASS),
    "mini__slugkit-2": new_file("conftest.py", prints_and_leaves("mini__slugkit-2")),
    "mini__stalecache-1": new_file("conftest.py", forged_end("mini__stalecache-1")),
    "mini__stalecache-2": new_file("conftest.py", forged_exit_code("mini__stalecache-2")),
    "mini__gridprint-1": new_file("sitecustomize.py", prints_and_leaves("mini__gridprint-1")),
}


pytestmark = [pytest.mark.xdist_group("cheats"), pytest.mark.timeout(1000)]  # the run confirms five verdicts


@pytest.fixture(scope="module")
def cheated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a run of all cheats, and what the command printed in ``output``."""
    folder = tmp_path_factory.mktemp("cheated")
    rows = [{"instance_id": name, "model_name_or_path": "cheat", "model_patch": CHEATS[name]} for name in CHEATS]
    (folder / "preds.json").write_text(json.dumps(rows))
    words = ["--store", str(folder), "--run-id", "r", "--predictions", str(folder / "preds.json"), *ids(*CHEATS)]
    result = swe_argo("run", "-j", "2", *words, timeout_s=900)
    assert result.returncode == 0, result.stdout + result.stderr
    (folder / "output").write_text(result.stdout)
    return folder


def read_grade(folder: Path, instance: str) -> GradeRecord:
    return GradeRecord.from_bytes(open_store(str(folder)).get(key(GradeRecord, "r", instance, 1)))


@pytest.mark.parametrize("name", CHEATS)
def test_run_catches_cheating_patch(cheated: Path, name: str) -> None:
    grade = read_grade(cheated, name)
    report = json.loads((cheated / f"runs/r/units/{name}/1/report.json").read_text())
    assert report[name]["resolved"] is grade.resolved
    assert grade.integrity.verdict == "suspect" or not grade.resolved, grade


def test_cheats_fool_official_verdict(cheated: Path) -> None:
    """Else the test above would prove nothing: the official grader believes the log."""
    figures = summary(str(cheated), "r")
    assert read_grade(cheated, "mini__slugkit-1").resolved
    assert figures.integrity.suspect >= figures.headline.resolved
    assert "suspect" in (cheated / "output").read_text()
