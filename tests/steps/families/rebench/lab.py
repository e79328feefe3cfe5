"""Images as SWE-rebench makes them: V2's repository lies at /calc, V1's at /testbed, both at the base commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.steps.families.chain import BROKEN, FIXED, commit_all, make_testbed, write_rows
from tests.steps.families.git_trees import run_git
from tests.steps.families.rebench.make_rows import v1_row, v2_row, with_config

OLD_TESTS = "def test_other():\n    assert True\n"
TESTS = "from calc import answer\n\n\ndef test_answer():\n    assert answer() == 42\n\n\n" + OLD_TESTS
NEW_TESTS = "def test_new():\n    assert True\n"
V2_IMAGE, V1_IMAGE = "acme/calc-v2:1", "acme/calc-v1:1"
TESTS_OF = {
    "FAIL_TO_PASS": ["tests/test_calc.py::test_answer", "tests/test_new.py::test_new"],
    "PASS_TO_PASS": ["tests/test_calc.py::test_other"],
}


def make_lab(folder: Path, form: str = "v2") -> Path:
    """Write ``rows.jsonl`` and ``images/`` into a folder; the image's repository."""
    testbed = make_testbed(folder, V2_IMAGE if form == "v2" else V1_IMAGE)
    (testbed / "calc.py").write_text(BROKEN)
    (testbed / "conftest.py").write_text("")
    (testbed / "setup.cfg").write_text("[metadata]\n")
    tests = testbed / "tests"
    tests.mkdir()
    (tests / "test_calc.py").write_text(OLD_TESTS)
    (tests / "test_old_name.py").write_text("# a file that only moves, with enough in it\nx = [1, 2, 3, 4, 5]\n")
    commit = commit_all(testbed, "base")
    (testbed / "calc.py").write_text(FIXED)
    fix = run_git(testbed, "diff").decode()
    run_git(testbed, "checkout", "-q", ".")
    (tests / "test_calc.py").write_text(TESTS)
    (tests / "test_new.py").write_text(NEW_TESTS)
    run_git(testbed, "mv", "tests/test_old_name.py", "tests/name.py")
    run_git(testbed, "add", "-A")
    hidden = run_git(testbed, "diff", "--cached", "-M").decode()
    run_git(testbed, "reset", "-q", "--hard")
    (testbed / "setup.cfg").write_text("[metadata]\nname = changed by what made the image\n")
    row: dict[str, Any] = {"base_commit": commit, "patch": fix, "test_patch": hidden, **TESTS_OF}
    if form == "v2":
        command = ["python3 --version", "python3 -m pytest -rA --color=no -p no:cacheprovider tests"]
        write_rows(folder, with_config(v2_row(image_name=V2_IMAGE, **row), test_cmd=command))
    else:
        command_of_v1 = "python3 -m pytest -rA --color=no -p no:cacheprovider"
        write_rows(folder, with_config(v1_row(docker_image=V1_IMAGE, **row), test_cmd=command_of_v1))
    return testbed
