"""The script of SWE-Gym, run by bash in a repository that looks like its image."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.families import issue_columns
from swe_argo.steps.families.swegym import script
from swe_argo.steps.families.swegym.verdict import judge
from tests.steps.families.git_trees import run_git
from tests.steps.families.swegym.make_rows import make_row

OLD_TEST = "from a import x\n\ndef test_y():\n    assert x()\n"
NEW_TEST = OLD_TEST + "\ndef test_x():\n    assert x() == 1\n"


@pytest.fixture
def row(tmp_path: Path) -> dict[str, Any]:
    """The instance of ``testbed``, whose fix and whose tests are made by git."""
    testbed = tmp_path / "testbed"
    (testbed / "tests").mkdir(parents=True)
    run_git(testbed, "init", "-q")
    (testbed / "a.py").write_text("def x():\n    return 2\n")
    (testbed / "conftest.py").write_text("")
    (testbed / "Makefile").write_text("init:\n\t@echo installed\n")
    (testbed / "tests" / "test_a.py").write_text(OLD_TEST)
    run_git(testbed, "add", "-A")
    run_git(testbed, "-c", "user.name=n", "-c", "user.email=e@localhost", "commit", "-q", "-m", "base")
    base = run_git(testbed, "rev-parse", "HEAD").decode().strip()
    (testbed / "a.py").write_text("def x():\n    return 1\n")
    gold = run_git(testbed, "diff").decode()
    run_git(testbed, "checkout", "-q", "--", "a.py")
    (testbed / "tests" / "test_a.py").write_text(NEW_TEST)
    (testbed / "tests" / "data.json").write_text("{}\n")
    run_git(testbed, "add", "-N", "tests")
    tests = run_git(testbed, "diff").decode()
    run_git(testbed, "reset", "-q", "--hard")
    run_git(testbed, "clean", "-qfd")
    return make_row(
        base_commit=base,
        patch=gold,
        test_patch=tests,
        FAIL_TO_PASS=["tests/test_a.py::test_x"],
        PASS_TO_PASS=["tests/test_a.py::test_y"],
    )


def run(row: dict[str, Any], tmp_path: Path, **options: bool) -> str:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):  # of a `make test`
        environment.pop(name, None)
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # sources change within a second here
    command = ["bash", "-c", script.eval_script(row, str(tmp_path / "testbed"), **options)]
    return subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=90
    ).stdout


def apply(tmp_path: Path, patch: str) -> None:
    run_git(tmp_path / "testbed", "apply", "--allow-empty", "-v", stdin=patch.encode())


def test_only_the_gold_patch_resolves(row: dict[str, Any], tmp_path: Path) -> None:
    assert list(judge(run(row, tmp_path), row).differences) == ["tests/test_a.py::test_x"]
    run_git(tmp_path / "testbed", "reset", "-q", "--hard")
    run_git(tmp_path / "testbed", "clean", "-qfd")
    apply(tmp_path, issue_columns.gold_patch(row))
    verdict = judge(run(row, tmp_path), row)
    assert verdict.reward == 1.0
    assert not verdict.findings


def test_install_runs_only_on_request(row: dict[str, Any], tmp_path: Path) -> None:
    assert "+ make init\ninstalled\n" in run(row, tmp_path)
    assert "make init" not in run(row, tmp_path, install=False)


def test_patch_cannot_change_its_tests(row: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "testbed" / "tests" / "test_a.py").write_text("def test_x(): pass\n\ndef test_y(): pass\n")
    assert list(judge(run(row, tmp_path), row).differences) == ["tests/test_a.py::test_x"]
    assert (tmp_path / "testbed" / "tests" / "test_a.py").read_text() == OLD_TEST


def test_patch_cannot_block_the_tests(row: dict[str, Any], tmp_path: Path) -> None:
    """A new file of the tests is there already, so git applies none of them, and the log says that none was."""
    (tmp_path / "testbed" / "tests" / "data.json").write_text("[]\n")
    verdict = judge(run(row, tmp_path), row)
    assert not verdict.resolved
    assert verdict.unreadable == "no test patch was applied"


def test_script_matches_swe_gym() -> None:
    lines = script.eval_script(make_row()).splitlines()
    assert lines[:5] == [
        "#!/bin/bash",
        "set -xo pipefail",
        "source /opt/miniconda3/bin/activate",
        "conda activate testbed",
        "cd /testbed",
    ]
    commit = make_row()["base_commit"]
    assert lines.count(f"git checkout {commit} tests/test_a.py") == 2
    assert lines[-3:] == [
        "pytest -n0 -rA tests/test_a.py",
        "{ SWEBENCH_TEST_EXIT_CODE=$?; } 2>/dev/null",  # ours, and in no log
        f"git checkout {commit} tests/test_a.py",
    ]
    assert lines.index("make init") < lines.index("git apply -v - <<'EOF_114329324912'")


def test_heredoc_word_avoids_the_patch() -> None:
    patch = make_row()["test_patch"] + "EOF_114329324912\n"
    assert "<<'EOF_114329324912_'" in script.eval_script(make_row(test_patch=patch))
