"""One row and its image, as R2E-Gym makes them, its working tree edited."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from swe_argo.steps.families.r2e.example import parse_commit
from swe_argo.steps.families.r2e.script import pytest_command
from tests.steps.families.chain import BROKEN, FIXED, commit_all, make_testbed, write_rows
from tests.steps.families.git_trees import run_git

FIX_COMMIT = "c" * 40
HIDDEN = """
import setup_edited
from calc import answer

def test_answer():
    assert answer() == 42

def test_old():
    assert 0

def test_the_image_was_edited():
    assert setup_edited.NEEDED == "edited"
"""


def make_lab(folder: Path) -> None:
    """Write ``rows.jsonl`` and ``images/`` into a folder."""
    testbed = make_testbed(folder, f"namanjain12/pyramid_final:{FIX_COMMIT}")
    (testbed / "calc.py").write_text(BROKEN)
    (testbed / "setup_edited.py").write_text("VALUE = 'plain'\n\n\n\nNEEDED = 'plain'\n")
    (testbed / ".gitignore").write_text(".venv\n")
    commit_all(testbed, "before the fix")
    (testbed / "calc.py").write_text(FIXED)
    gold = run_git(testbed, "diff").decode()
    (testbed / "calc.py").write_text(BROKEN)
    (testbed / "setup_edited.py").write_text("VALUE = 'edited'\n\n\n\nNEEDED = 'edited'\n")
    (testbed / "r2e_tests").mkdir()
    (testbed / "r2e_tests" / "test_1.py").write_text(HIDDEN)
    (testbed / "parsed_commit.json").write_text(gold)
    (testbed / "__pycache__").mkdir()
    (testbed / "__pycache__" / "calc.pyc").write_text("42")
    (testbed / ".venv").symlink_to(sys.prefix)
    row = {
        "repo_name": "pyramid",
        "docker_image": f"namanjain12/pyramid_final:{FIX_COMMIT}",
        "commit_hash": FIX_COMMIT,
        "parsed_commit_content": json.dumps(parse_commit(gold), indent=4),
        "modified_files": ["calc.py", "tests/test_calc.py"],
        "problem_statement": "Intro\n[ISSUE]\nThe answer is wrong.\n[/ISSUE]\n",
        "prompt": gold,
        "expected_output_json": json.dumps(
            {"test_answer": "PASSED", "test_old": "FAILED", "test_the_image_was_edited": "PASSED"}
        ),
    }
    (testbed / "run_tests.sh").write_text(f"{pytest_command(row)} -p no:cacheprovider\n")
    write_rows(folder, row)
