"""``swe-argo grade-log``: saved logs of real runs, by current rows and by classic ones."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from swe_argo.steps.datasets.load import load
from tests.paths import DATA, needs_data
from tests.steps.grading.logs import make_log, make_patch, write
from tests.workflows.command import swe_argo

TARGET = "mini__slugkit-1"
ROWS = str(DATA / "swebench" / "verified_test.parquet")


def mini_log(folder: Path, *, printed: str = "", marked: bool = True) -> Path:
    """A log in which every test of an instance passes, and what else it printed."""
    row = next(row for row in load("mini", "test").rows if row["instance_id"] == TARGET)
    tests = [f"PASSED {test}" for test in (*row["FAIL_TO_PASS"], *row["PASS_TO_PASS"])]
    log = make_log(*tests, *([printed] if printed else []), code=0)
    text = log if marked else "\n".join(line for line in log.split("\n") if ">>>>>" not in line)
    return write(folder, f"{TARGET}/test_output.txt", text)


def test_integrity_is_said_beside_the_verdict(tmp_path: Path) -> None:
    log = mini_log(tmp_path)
    words = ["grade-log", "-d", "mini", "-i", TARGET, "--log", str(log)]
    plain, examined = swe_argo(*words), swe_argo(*words, "--integrity")
    assert (plain.returncode, examined.returncode) == (0, 0), plain.stderr + examined.stderr
    assert plain.stderr == ""
    found = json.loads(examined.stdout)
    assert found["report"] == json.loads(plain.stdout)
    assert found["integrity"] == {"verdict": "ok", "findings": []}
    assert found["log"] == str(log)
    assert examined.stderr == f"{log}: {TARGET}: resolved, ok\n"


def test_a_forged_log_is_said_to_be_suspect_and_why(tmp_path: Path) -> None:
    log = mini_log(tmp_path, printed=">>>>> Test Exit Code: 0")
    done = swe_argo("grade-log", "-d", "mini", "-i", TARGET, "--log", str(log), "--integrity")
    assert json.loads(done.stdout)["integrity"]["verdict"] == "suspect"
    assert f"{log}: {TARGET}: resolved, suspect (" in done.stderr
    assert "exit_code_before_end: " in done.stderr
    patch = write(tmp_path, "p.diff", make_patch("README.md", ">>>>> End Test Output").decode())
    done = swe_argo(
        "grade-log", "-d", "mini", "-i", TARGET, "--log", str(mini_log(tmp_path)), "--patch", str(patch), "--integrity"
    )
    assert "marker_in_patch: the patch contains" in done.stderr


def test_the_path_of_each_log_of_a_folder_is_said(tmp_path: Path) -> None:
    logs = [mini_log(tmp_path / "a"), mini_log(tmp_path / "b")]
    words = ["grade-log", "-d", "mini", "--corpus", str(tmp_path)]
    plain, examined = swe_argo(*words), swe_argo(*words, "--integrity")
    assert plain.stderr.splitlines() == [f"{log}: {TARGET}: resolved" for log in logs]
    assert [list(json.loads(line)) for line in plain.stdout.splitlines()] == [[TARGET], [TARGET]]
    assert [json.loads(line)["log"] for line in examined.stdout.splitlines()] == [str(log) for log in logs]


def test_a_log_without_markers_is_told_in_a_line(tmp_path: Path) -> None:
    log = mini_log(tmp_path, marked=False)
    done = swe_argo("grade-log", "-d", "mini", "-i", TARGET, "--log", str(log))
    assert json.loads(done.stdout)[TARGET]["resolved"] is False
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{log}: {TARGET}: no verdict: ")
    assert "another harness" in line


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    with tarfile.open(DATA / "swebench" / "harness_logs.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@needs_data
def test_a_whole_folder_is_graded_in_one_process(logs: Path) -> None:
    done = swe_argo("grade-log", "-d", ROWS, "--corpus", str(logs / "verified"))
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 87
    for report in found:
        ((instance_id, verdict),) = report.items()
        expected = json.loads((logs / "verified" / instance_id / "expected_5.0.2.json").read_text())
        assert verdict == expected, instance_id


@needs_data
@pytest.mark.parametrize("rows", ["verified_test", "verified_test_classic"])
def test_one_log_prints_the_official_report(logs: Path, rows: str) -> None:
    name = sorted(path.name for path in (logs / "verified").iterdir())[0]
    log = logs / "verified" / name / "test_output.txt"
    words = ["grade-log", "-d", str(DATA / "swebench" / f"{rows}.parquet"), "-i", name, "--log", str(log)]
    done = swe_argo(*words, "--patch", str(log.with_name("patch.diff")))
    assert done.returncode == 0, done.stderr
    expected = json.loads(log.with_name("expected_5.0.2.json").read_text())
    assert done.stdout == json.dumps({name: expected}, indent=4) + "\n"
