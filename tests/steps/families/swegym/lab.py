"""An image as SWE-Gym makes them: the repository at its base commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.steps.families.chain import BROKEN, FIXED, commit_all, make_testbed, write_rows
from tests.steps.families.git_trees import run_git

OLD_TESTS = "def test_other():\n    assert True\n"
TESTS = "from calc import answer\n\n\ndef test_answer():\n    assert answer() == 42\n\n\n" + OLD_TESTS


IMAGE = "xingyaoww/sweb.eval.x86_64.dask_s_dask-1:latest"


def make_row(commit: str, fix: str, tests: str, fail_to_pass: list[str], pass_to_pass: list[str]) -> dict[str, Any]:
    """Return a row of SWE-Gym, whose image is ``IMAGE``."""
    return {
        "instance_id": "dask__dask-1",
        "repo": "dask/dask",
        "version": "1.0",
        "base_commit": commit,
        "patch": fix,
        "test_patch": tests,
        "problem_statement": "The answer is wrong.",
        "hints_text": "",
        "created_at": "2024-01-01",
        "FAIL_TO_PASS": fail_to_pass,
        "PASS_TO_PASS": pass_to_pass,
    }


def make_lab(folder: Path) -> None:
    """Write ``rows.jsonl`` and ``images/`` into a folder."""
    testbed = make_testbed(folder, IMAGE)
    (testbed / "calc.py").write_text(BROKEN)
    (testbed / "test_calc.py").write_text(OLD_TESTS)
    commit = commit_all(testbed, "base")
    (testbed / "calc.py").write_text(FIXED)
    fix = run_git(testbed, "diff").decode()
    run_git(testbed, "checkout", "-q", ".")
    (testbed / "test_calc.py").write_text(TESTS)
    tests = run_git(testbed, "diff").decode()
    run_git(testbed, "checkout", "-q", ".")
    write_rows(folder, make_row(commit, fix, tests, ["test_calc.py::test_answer"], ["test_calc.py::test_other"]))
