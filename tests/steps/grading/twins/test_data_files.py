"""Sites in data files, and confirmations of tests that expect one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swe_argo.steps.contracts.verdict import ConfirmationOutcome, GradeRecord
from swe_argo.steps.families import rows
from swe_argo.steps.grading.twins.sites import SiteChange, apply_changes, find_words, is_data
from tests.steps.families.chain import commit_all, make_testbed, write_rows
from tests.steps.families.git_trees import run_git
from tests.steps.families.labs import FEW_PLUGINS, SWEGYM_IMAGE, swegym_row
from tests.steps.grading.attacks import EMPTY_RUNTEST
from tests.steps.grading.grade_mini import grade_mini

JQ = b"""# the length of a text
length
"otter"
5

%%FAIL
length +
jq: error: unexpected end

[.[] | keys]
[{"falcon": 1}]
["falcon"]
"""
SNAPSHOT = b"---\nsource: crates/linter/mod.rs\n---\nF523.py:2:1: unused argument\n"
DOCTEST = b"Text of the page.\n\n>>> spell(12)\n'twelve'\n>>> for each in ():\n...     print(each)\n\nNot twelve.\n"


@pytest.mark.parametrize(
    ("path", "source", "words"),
    [
        ("tests/jq.test", JQ, ["5", "falcon"]),
        ("crates/linter/src/snapshots/linter__F523.py.snap", SNAPSHOT, ["2", "1", "unused", "argument"]),
        ("docs/spelling.rst", DOCTEST, ["twelve"]),
        ("fixtures/es2015/yield/output.json", b'{"type": "File", "start": 17}\n', ["type", "File", "start", "17"]),
        ("test/resource/after-delombok/Val.java", b"final int count = 3;\n", ["final", "int", "count", "3"]),
        ("docs/page.md", b"Twelve words that nothing expects.\n", []),
    ],
)
def test_data_file_has_expected_words(path: str, source: bytes, words: list[str]) -> None:
    assert is_data(path)
    sites = find_words(path, source, range(1, 100))
    assert [site.text for site in sites] == words
    for site in sites:
        start, end = site.root
        assert apply_changes(source, [SiteChange(site, "xyz")]) == source[:start] + b"xyz" + source[end:]


def test_unchanged_lines_have_no_site() -> None:
    assert [site.text for site in find_words("a/output.txt", b"alpha\nbravo\n", {2})] == ["bravo"]


@pytest.mark.parametrize("path", ["src/a.py", "tests/test_output.py", "tests/data.bin", "tests/names.json"])
def test_other_file_is_no_data_file(path: str) -> None:
    assert not is_data(path)


ANIMALS = "heron 41\notter 72\nbadger 18\nweasel 93\nmarten 27\nlinnet 65\ncuckoo 54\nplover 36\n"
TESTS = """from pathlib import Path
from animals import report

def test_report():
    assert report() == (Path(__file__).parent / "expected" / "report.txt").read_text()

def test_name():
    assert report().startswith("heron")
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An instance of SWE-Gym whose only FAIL_TO_PASS test expects a file."""
    folder = tmp_path_factory.mktemp("data")
    testbed = make_testbed(folder, SWEGYM_IMAGE, FEW_PLUGINS)
    (testbed / "animals.py").write_text(f'TEXT = """{ANIMALS[:30]}"""\n\ndef report():\n    return TEXT\n')
    (testbed / "tests" / "expected").mkdir(parents=True)
    (testbed / "tests" / "test_animals.py").write_text(TESTS)
    (testbed / "conftest.py").touch()
    (testbed / "tests" / "expected" / "report.txt").write_text(ANIMALS[:30])
    commit = commit_all(testbed, "base")
    (testbed / "animals.py").write_text(f'TEXT = """{ANIMALS}"""\n\ndef report():\n    return TEXT\n')
    fix = run_git(testbed, "diff").decode()
    run_git(testbed, "checkout", "-q", ".")
    (testbed / "tests" / "expected" / "report.txt").write_text(ANIMALS)
    tests = run_git(testbed, "diff").decode()
    run_git(testbed, "checkout", "-q", ".")
    row = swegym_row(commit, fix, tests, ["tests/test_animals.py::test_report"], ["tests/test_animals.py::test_name"])
    write_rows(folder, row)
    return folder


def grade(lab: Path, patch: str | None) -> GradeRecord:
    row = rows.normalise(json.loads((lab / "rows.jsonl").read_text()), "row")
    options = {"sandbox": {"local_images": str(lab / "images")}}
    return grade_mini(row["instance_id"], patch or row["patch"], lab / "grades", row=row, options=options)


@pytest.mark.long
def test_data_file_test_is_confirmed(lab: Path) -> None:
    record = grade(lab, None)
    assert record.resolved
    assert record.confirmation is not None
    assert record.confirmation.tests_with_site == 1, record.confirmation
    assert record.confirmation.outcome in (ConfirmationOutcome.CONFIRMED, ConfirmationOutcome.PARTLY)


@pytest.mark.timeout(900)  # a dozen runs of pytest
def test_data_file_cheat_is_contradicted(lab: Path) -> None:
    patch = "diff --git a/animals.py b/animals.py\n--- a/animals.py\n+++ b/animals.py\n@@ -1,1 +1,3 @@\n"
    lines = "".join(f"+{line}\n" for line in EMPTY_RUNTEST.split("\n"))
    record = grade(lab, f'{patch}{lines} TEXT = """{ANIMALS[:30].partition(chr(10))[0]}\n')
    assert record.resolved
    assert record.confirmation is not None
    assert record.confirmation.outcome is ConfirmationOutcome.CONTRADICTED, record.confirmation
