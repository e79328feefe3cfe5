"""``swe-argo grade-log``: saved logs of real runs, by current rows and by classic ones."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from swe_argo.steps.datasets.load import load
from tests.paths import DATA, needs_data
from tests.steps.grading.logs import make_log, make_patch, write
from tests.workflows.command import call

TARGET = "mini__slugkit-1"
ROWS = str(DATA / "swebench" / "verified_test.parquet")


def mini_log(folder: Path, *, printed: str = "", marked: bool = True) -> Path:
    """Write a log in which every test of an instance passes, with additional output."""
    row = next(row for row in load("mini", "test").rows if row["instance_id"] == TARGET)
    tests = [f"PASSED {test}" for test in (*row["FAIL_TO_PASS"], *row["PASS_TO_PASS"])]
    log = make_log(*tests, *([printed] if printed else []), code=0)
    text = log if marked else "\n".join(line for line in log.split("\n") if ">>>>>" not in line)
    return write(folder, f"{TARGET}/test_output.txt", text)


def test_grade_log_prints_integrity(tmp_path: Path) -> None:
    log = mini_log(tmp_path)
    words = ["grade-log", "-d", "mini", "-i", TARGET, "--log", str(log)]
    plain, examined = call(*words), call(*words, "--integrity")
    assert (plain.returncode, examined.returncode) == (0, 0), plain.stderr + examined.stderr
    assert plain.stderr == ""
    record = json.loads(examined.stdout)
    assert record["report"] == json.loads(plain.stdout)
    assert record["integrity"] == {"verdict": "ok", "findings": []}
    assert record["log"] == str(log)
    assert examined.stderr == f"{log}: {TARGET}: resolved, ok\n"


def test_grade_log_reports_forged_log(tmp_path: Path) -> None:
    log = mini_log(tmp_path, printed=">>>>> Test Exit Code: 0")
    result = call("grade-log", "-d", "mini", "-i", TARGET, "--log", str(log), "--integrity")
    assert json.loads(result.stdout)["integrity"]["verdict"] == "suspect"
    assert f"{log}: {TARGET}: resolved, suspect (" in result.stderr
    assert "exit_code_before_end: " in result.stderr
    patch = write(tmp_path, "p.diff", make_patch("README.md", ">>>>> End Test Output").decode())
    words = ["-d", "mini", "-i", TARGET, "--log", str(mini_log(tmp_path)), "--patch", str(patch)]
    result = call("grade-log", *words, "--integrity")
    assert "marker_in_patch: the patch contains" in result.stderr


def test_grade_log_prints_every_path(tmp_path: Path) -> None:
    logs = [mini_log(tmp_path / "a"), mini_log(tmp_path / "b")]
    words = ["grade-log", "-d", "mini", "--corpus", str(tmp_path)]
    plain, examined = call(*words), call(*words, "--integrity")
    assert plain.stderr.splitlines() == [f"{log}: {TARGET}: resolved" for log in logs]
    assert [list(json.loads(line)) for line in plain.stdout.splitlines()] == [[TARGET], [TARGET]]
    assert [json.loads(line)["log"] for line in examined.stdout.splitlines()] == [str(log) for log in logs]


def test_grade_log_reports_no_markers(tmp_path: Path) -> None:
    log = mini_log(tmp_path, marked=False)
    result = call("grade-log", "-d", "mini", "-i", TARGET, "--log", str(log))
    assert json.loads(result.stdout)[TARGET]["resolved"] is False
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"{log}: {TARGET}: no verdict: ")
    assert "another harness" in line


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    with tarfile.open(DATA / "swebench" / "harness_logs.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@needs_data
def test_grade_log_grades_whole_folder(logs: Path) -> None:
    result = call("grade-log", "-d", ROWS, "--corpus", str(logs / "verified"))
    assert result.returncode == 0, result.stderr
    reports = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(reports) == 87
    for report in reports:
        ((instance_id, verdict),) = report.items()
        expected = json.loads((logs / "verified" / instance_id / "expected_5.0.2.json").read_text())
        assert verdict == expected, instance_id


@needs_data
@pytest.mark.parametrize("rows", ["verified_test", "verified_test_classic"])
def test_grade_log_prints_official_json(logs: Path, rows: str) -> None:
    name = sorted(path.name for path in (logs / "verified").iterdir())[0]
    log = logs / "verified" / name / "test_output.txt"
    words = ["grade-log", "-d", str(DATA / "swebench" / f"{rows}.parquet"), "-i", name, "--log", str(log)]
    result = call(*words, "--patch", str(log.with_name("patch.diff")))
    assert result.returncode == 0, result.stderr
    expected = json.loads(log.with_name("expected_5.0.2.json").read_text())
    assert result.stdout == json.dumps({name: expected}, indent=4) + "\n"
