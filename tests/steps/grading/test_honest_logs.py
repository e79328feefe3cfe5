"""Logs of honest runs that only look odd: none is suspect. What looks like them and is not, still is."""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.grading.exit_code_channel import ChannelReport
from tests.paths import DATA, needs_data
from tests.steps.grading.logs import F2P, P2P, SCRIPT, codes_of, judge, make_log, write

INNER = "def test_inner(): pass\ndef test_two(): assert 0\n"
# As pytest's own tests are: each runs pytest on a file of its own and prints what that prints.
OUTER = """
import subprocess, sys

def test_runs_pytest(tmp_path):
    (tmp_path / "test_in.py").write_text({inner!r})
    words = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "test_in.py", *{options!r}]
    print(subprocess.run(words, cwd=tmp_path, capture_output=True, text=True).stdout)

def test_again(tmp_path):
    (tmp_path / "test_in.py").write_text("def test_inner(): assert 0\\n")
    words = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "test_in.py"]
    print(subprocess.run(words, cwd=tmp_path, capture_output=True, text=True).stdout)
"""


def pytest_log(folder: Path, *options: str) -> str:
    """What a real pytest prints of the file above, between the markers."""
    words = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "-p", "no:xdist", *options]
    temporary = folder / "tmp"  # pytest, where it ends, removes what earlier runs left beside its own
    temporary.mkdir(exist_ok=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    env["TMPDIR"] = str(temporary)
    result = subprocess.run(
        [*words, "tests/test_calc.py"], cwd=folder, capture_output=True, text=True, check=False, env=env
    )
    return make_log(result.stdout, closing=None, code=result.returncode)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("outer")
    write(root, "tests/test_calc.py", OUTER.format(inner=INNER, options=["-v", "-o", "log_cli=true"]))
    write(root, "pytest.ini", "[pytest]\n")
    return root


def test_inner_runner_output_is_ignored(folder: Path) -> None:
    log = pytest_log(folder)
    outer = ["tests/test_calc.py::test_runs_pytest", "tests/test_calc.py::test_again"]
    # Lists were made from such logs: inner ids and marks of progress stand in them.
    for inner in (["test_in.py::test_inner"], ["test_in.py::test_inner", "[100%]"], ["[100%]"]):
        graded, _, integrity = judge(log, FAIL_TO_PASS=outer, PASS_TO_PASS=inner, channel_report=ChannelReport(0, True))
        assert "test_in.py::test_inner" in graded.reading.statuses
        assert integrity.findings == [], inner


def test_progress_marks_are_no_tests(tmp_path: Path) -> None:
    # With live logging a status stands alone: "PASSED  [100%]".
    text = "import logging\n\n\ndef test_adds():\n    logging.warning('x')\n\n\n"
    write(tmp_path, "tests/test_calc.py", text + "def test_fails():\n    logging.warning('x')\n    assert 0\n")
    write(tmp_path, "pytest.ini", "[pytest]\n")
    log = pytest_log(tmp_path, "-v", "-o", "log_cli=true")
    log = log.replace("[ 50%]", "[100%]")  # of two runs that end so
    graded, _, integrity = judge(
        log, FAIL_TO_PASS=[F2P], PASS_TO_PASS=["[100%]"], channel_report=ChannelReport(1, True)
    )
    assert "[100%]" in graded.reading.statuses
    assert integrity.findings == []


def test_listed_file_id_still_counts(folder: Path) -> None:
    log = pytest_log(folder).replace("PASSED test_in.py::test_inner", f"PASSED {F2P}").replace("test_in", "test_calc")
    outer = ["tests/test_calc.py::test_runs_pytest", "tests/test_calc.py::test_again", F2P]
    _, _, integrity = judge(log, FAIL_TO_PASS=outer, PASS_TO_PASS=[])
    assert "more_passed_than_ran" in codes_of(integrity)


def test_folder_command_covers_its_files() -> None:
    script = SCRIPT.replace("pytest -rA tests/test_calc.py", "pytest -rA tests")
    log = make_log(f"PASSED {F2P}", f"PASSED {P2P}", closing="=== 1 passed in 0.01s ===")
    for candidate in (script, script.replace("-rA tests", "-rA")):
        _, _, integrity = judge(log, eval_script=candidate)
        assert "more_passed_than_ran" in codes_of(integrity)


def test_timeout_cut_is_no_finding() -> None:
    cut = make_log(f"PASSED {F2P}", closing=None, end=False).partition("+ git checkout")[0]
    graded, _, integrity = judge(f"{cut}\n\nTimeout error: 1800 seconds exceeded.")
    assert not graded.inner["resolved"]
    assert integrity.findings == []
    before = f"{cut.partition('+ :')[0]}\n\nTimeout error: 1800 seconds exceeded."
    assert judge(before)[2].findings == []


def test_printed_timeout_excuses_nothing() -> None:
    cut = make_log("\n\nTimeout error: 1800 seconds exceeded.", f"PASSED {F2P}", closing=None, end=False)
    assert "end_markers" in codes_of(judge(cut)[2])


def test_foreign_log_is_not_examined() -> None:
    log = "\n".join(line for line in make_log(f"PASSED {F2P}").split("\n") if ">>>>>" not in line)
    assert codes_of(judge(log)[2]) == set()
    assert {"start_markers", "end_markers"} <= codes_of(judge(log, channel_report=ChannelReport(0, True))[2])


SYMPY = """
sympy/core/tests/test_args.py[2]
test_add ok
test_sub ok                                                                 [OK]

sympy/sets/tests/test_args.py[2]
test_add F
test_mul ok                                                               [FAIL]

________________________________________________________________________________
_________________ sympy/sets/tests/test_args.py:test_add _______________________
AssertionError
{closing}
"""
OF_SYMPY: dict[str, Any] = {
    "log_parser": "parse_log_sympy",
    "FAIL_TO_PASS": ["test_add"],
    "PASS_TO_PASS": ["test_mul", "test_sub"],
}
COUNT = "====== tests finished: 3 passed, 1 failed, in 0.01 seconds ======"


@pytest.mark.parametrize("first", ["core", "sets"])
def test_files_may_share_a_test_name(first: str) -> None:
    text = SYMPY.format(closing=COUNT)
    if first == "sets":
        parts = text.split("\n\n")
        text = "\n\n".join([parts[1], parts[0], *parts[2:]])
    _, _, integrity = judge(make_log(text, closing=None, code=1), **OF_SYMPY)
    assert integrity.findings == []


def test_integrity_sees_repeated_names() -> None:
    text = SYMPY.format(closing=COUNT).replace("test_mul ok", "test_add ok\ntest_mul ok")
    _, _, integrity = judge(make_log(text, closing=None, code=1), **OF_SYMPY)
    assert "passed_and_failed" in codes_of(integrity)


def relatives() -> Iterator[tuple[str, str, list[str], list[str]]]:
    """Real logs of SWE-Gym, SWE-smith and R2E-Gym: name, text, and what must pass and must still pass."""

    def lists(row: dict[str, Any]) -> tuple[list[str], list[str]]:
        columns = (row[name] for name in ("FAIL_TO_PASS", "PASS_TO_PASS"))
        first, second = (json.loads(tests) if isinstance(tests, str) else tests for tests in columns)
        return first, second

    for line in (DATA / "swegym/rows.jsonl").read_text().splitlines():
        row = json.loads(line)
        for log in sorted((DATA / "swegym/logs" / row["instance_id"]).glob("test_output.*.txt")):
            yield str(log), log.read_text(), *lists(row)
    for folder in ("evaluations", "rebuilt"):
        for rows in sorted((DATA / "swesmith" / folder).glob("*/row*.json")):
            for log in sorted(rows.parent.glob("test_output*.txt*")):
                text = lzma.decompress(log.read_bytes()).decode() if log.suffix == ".xz" else log.read_text()
                yield str(log), text, *lists(json.loads(rows.read_text()))
    for log in sorted((DATA / "r2e").rglob("out.*.txt")):
        text = log.read_text()
        yield str(log), text, [line.split()[1] for line in text.split("\n") if line.startswith("PASSED ")], []


@needs_data
def test_real_logs_are_not_suspect() -> None:
    alarms, names = {}, []
    for name, text, first, second in relatives():
        names.append(name)
        files = sorted({test.partition("::")[0] for test in first + second})
        script = SCRIPT.replace("tests/test_calc.py", "tests/none.py").replace("-rA tests/none.py", " ".join(files))
        log = text if ">>>>> Start Test Output" in text else make_log(text, closing=None)
        _, _, integrity = judge(log, FAIL_TO_PASS=first, PASS_TO_PASS=second, eval_script=script)
        if integrity.findings:
            alarms[name] = integrity.findings
    assert len(names) >= 20
    assert alarms == {}
