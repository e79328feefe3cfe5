"""The scripts of SWE-smith, run by bash in a repository whose branch looks like the published ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.families.swesmith import rows, script
from swe_argo.steps.families.swesmith.verdict import judge
from tests.steps.families.git_trees import run_git
from tests.steps.families.swesmith.make_rows import make_row

GOOD, BAD = "def x():\n    return 1\n", "def x():\n    return 2\n"
TEST_A = "from a import x\n\ndef test_x():\n    assert x() == 1\n"
TEST_B = "import a\n\ndef test_y():\n    assert a.x\n"


def commit(folder: Path, message: str) -> None:
    run_git(folder, "add", "-A")
    run_git(folder, "-c", "user.name=n", "-c", "user.email=e@localhost", "commit", "-q", "-m", message)


@pytest.fixture
def row(tmp_path: Path) -> dict[str, Any]:
    """The instance of ``testbed``: three commits on its branch, checked out at main, as an image has it."""
    testbed = tmp_path / "testbed"
    (testbed / "tests").mkdir(parents=True)
    run_git(testbed, "init", "-q", "-b", "main")
    (testbed / "a.py").write_text(GOOD)
    (testbed / "tests" / "test_a.py").write_text(TEST_A)
    (testbed / "tests" / "test_b.py").write_text(TEST_B)
    (testbed / "conftest.py").write_text("")
    commit(testbed, "Initial commit")
    row = make_row(FAIL_TO_PASS=["tests/test_a.py::test_x"], PASS_TO_PASS=["tests/test_b.py::test_y"])
    run_git(testbed, "checkout", "-q", "-b", rows.branch(row))
    (testbed / "a.py").write_text(BAD)
    bug = run_git(testbed, "diff").decode()
    commit(testbed, "Bug Patch")
    (testbed / "tests" / "test_a.py").unlink()
    commit(testbed, "Remove F2P Tests")
    run_git(testbed, "checkout", "-q", "main")
    return row | {"patch": bug}


def run(text: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # sources change within a second here, which bytecode does not notice
    command = ["bash", "-c", text]
    return subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=90
    )


def grade(row: dict[str, Any], testbed: Path, patch: str) -> str:
    assert run(script.prepare_script(row, str(testbed))).returncode == 0
    run_git(testbed, "apply", "--verbose", stdin=patch.encode())
    assert run(script.restore_script(row, str(testbed))).returncode == 0
    return run(script.eval_script(row, str(testbed))).stdout


def test_only_the_gold_patch_resolves(row: dict[str, Any], tmp_path: Path) -> None:
    testbed = tmp_path / "testbed"
    assert run(script.prepare_script(row, str(testbed))).returncode == 0
    log = run(script.eval_script(row, str(testbed))).stdout
    assert list(judge(log, row).differences) == ["tests/test_a.py::test_x"]
    run_git(testbed, "checkout", "-q", "main")
    assert judge(grade(row, testbed, rows.gold_patch(row)), row).reward == 1.0


def test_gold_patch_applies_for_agents(row: dict[str, Any], tmp_path: Path) -> None:
    testbed = tmp_path / "testbed"
    assert run(script.agent_script(row, str(testbed))).returncode == 0
    run_git(testbed, "apply", stdin=rows.gold_patch(row).encode())
    assert (testbed / "a.py").read_text() == GOOD


def test_agent_starts_at_the_bug_only(row: dict[str, Any], tmp_path: Path) -> None:
    testbed = tmp_path / "testbed"
    assert run(script.agent_script(row, str(testbed))).returncode == 0
    assert (testbed / "a.py").read_text() == BAD
    assert not (testbed / "tests" / "test_a.py").exists()
    assert run_git(testbed, "rev-list", "--count", "HEAD").decode().strip() == "1"
    assert rows.branch(row) not in run_git(testbed, "branch", "-a").decode()
    assert not run_git(testbed, "status", "--porcelain")


def test_patch_cannot_change_its_tests(row: dict[str, Any], tmp_path: Path) -> None:
    easy = "--- a/tests/test_a.py\n+++ b/tests/test_a.py\n@@ -1,4 +1,2 @@\n" + "".join(
        f"-{line}\n" for line in TEST_A.splitlines()
    )
    easy += "+def test_x():\n+    pass\n"
    log = grade(row, tmp_path / "testbed", easy)
    assert list(judge(log, row).differences) == ["tests/test_a.py::test_x"]


def test_missing_branch_is_fetched(row: dict[str, Any], tmp_path: Path) -> None:
    """Images are older than the branches."""
    image = tmp_path / "image"
    subprocess.run(["git", "clone", "-q", "--single-branch", tmp_path / "testbed", image], check=True)
    assert run(script.prepare_script(row, str(image))).returncode == 0
    assert (image / "a.py").read_text() == BAD


def test_unknown_branch_has_exit_code(row: dict[str, Any], tmp_path: Path) -> None:
    unknown = row | {"instance_id": "Octo-Org__spoon.knife.0123abcd.lm_rewrite__none"}
    testbed = tmp_path / "testbed"
    assert run(script.prepare_script(unknown, str(testbed))).returncode == script.NOT_FETCHED  # there is no origin
    run_git(testbed, "remote", "add", "origin", str(tmp_path / "away.git"))
    assert run(script.prepare_script(unknown, str(testbed))).returncode == script.NOT_FETCHED
    run_git(tmp_path, "init", "-q", "--bare", "away.git")
    assert run(script.prepare_script(unknown, str(testbed))).returncode == script.NO_BRANCH


def test_script_matches_swesmith() -> None:
    row = make_row(repo="swesmith/pandas-dev__pandas.95280573")
    assert script.eval_script(row) == (
        "#!/bin/bash\nset -uxo pipefail\ncd /testbed\n: '>>>>> Start Test Output'\n"
        "source /opt/miniconda3/bin/activate; conda activate testbed; "
        "pytest --disable-warnings --color=no --tb=no --verbose tests/test_a.py tests/test_b.py\n"
        "{ SWEBENCH_TEST_EXIT_CODE=$?; } 2>/dev/null\n"  # ours, and in no log
        ": '>>>>> End Test Output'\n"
    )
    go = make_row(patch=make_row()["patch"].replace("a.py", "a.go"), FAIL_TO_PASS=["TestA"], PASS_TO_PASS=[])
    assert "git checkout -q HEAD -- '*_test.go'" in script.restore_script(go)
