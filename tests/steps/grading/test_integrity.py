"""Logs that were made to deceive, and honest ones that only look odd."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.grading.exit_code_channel import ChannelReport
from swe_argo.steps.grading.integrity import examine_patch
from swe_argo.steps.grading.saved_logs import read_log
from tests.steps.grading.logs import F2P, P2P, SCRIPT, codes_of, judge, make_log, make_patch, write

Rows = Callable[[str], dict[str, dict[str, Any]]]
PASSES = (f"PASSED {F2P}", f"PASSED {P2P}")
FAILS = (f"FAILED {F2P} - assert 1 == 5", f"PASSED {P2P}")
FAKE_CODE = ">>>>> Test Exit Code: 0"
END = "+ : '>>>>> End Test Output'"
TIMEOUT = "\n\nTimeout error: 1800 seconds exceeded."
UNENDED = make_log(f"PASSED {F2P}", closing=None, end=False).partition("+ git checkout")[0]
UNMARKED = "\n".join(line for line in make_log(f"PASSED {F2P}").split("\n") if ">>>>>" not in line)
WHOLE_FOLDER = SCRIPT.replace("pytest -rA tests/test_calc.py", "pytest -rA tests")
PATCH_LINE = 'print(">>>>> Start Test Output")'
SYMPY_FILES = (
    "sympy/core/tests/test_args.py[2]\ntest_add ok\ntest_sub ok                          [OK]\n",
    "sympy/sets/tests/test_args.py[2]\ntest_add F\ntest_mul ok                          [FAIL]\n",
)
Case = tuple[str, tuple[str, ...], bool | None, dict[str, Any]]


def case(log: str, *codes: str, resolved: bool | None = None, **options: Any) -> Case:
    """Return a log, codes of findings, whether it is resolved (None: not looked at), and options of ``judge``."""
    return log, codes, resolved, options


def report(code: int | None, *changed: str, intact: bool = True) -> dict[str, Any]:
    return {"channel_report": ChannelReport(code, intact, changed)}


def of(parser: str, *tests: str, must_stay: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"log_parser": f"parse_log_{parser}", "FAIL_TO_PASS": list(tests), "PASS_TO_PASS": list(must_stay)}


def sympy_log(*files: str) -> str:
    lines = ["", *files, "_" * 80, "______ sympy/sets/tests/test_args.py:test_add ______", "AssertionError"]
    closing = "====== tests finished: 3 passed, 1 failed, in 0.01 seconds ======"
    return make_log("\n".join([*lines, closing, ""]), closing=None, code=1)


DJANGO, CHART_JS = of("django", "test_a (m.T)"), of("chart_js", "a") | {"eval_type": "fail_only"}
SYMPY = of("sympy", "test_add", must_stay=("test_mul", "test_sub"))

SUSPECT: dict[str, Case] = {
    "passed lines only, real exit 1": case(
        make_log(*PASSES, closing=None, code=1), "failure_not_reported", resolved=False
    ),
    "a fake exit code first": case(make_log(FAKE_CODE, *PASSES, code=1), "exit_code_before_end", resolved=True),
    "a fake exit code first, real code known": case(
        make_log(FAKE_CODE, *PASSES, code=1), "exit_code_mismatch", "exit_codes_differ", "exit_code_lines", **report(1)
    ),
    "END and a fake exit code before the real failures": case(
        make_log(*PASSES, END, FAKE_CODE, *FAILS, code=1), "end_markers", resolved=True
    ),
    "END and a fake exit code, real code known": case(
        make_log(*PASSES, END, FAKE_CODE, *FAILS, code=1),
        *("exit_code_mismatch", "exit_codes_differ", "exit_code_lines"),
        **report(1),
    ),
    "END before the real failures, no fake exit code": case(
        make_log(*PASSES, END, *FAILS, code=1), "results_after_end", resolved=False
    ),
    "a printed count where only failures are parsed": case(
        make_log("  5 passing (3ms)", closing=None, code=1), "failure_not_reported", resolved=True, **CHART_JS
    ),
    "F2P skipped": case(make_log(f"SKIPPED {F2P}", f"PASSED {P2P}", code=0), "tests_skipped", resolved=False),
    "P2P skipped": case(make_log(f"PASSED {F2P}", f"SKIPPED {P2P}", code=0), "tests_skipped", resolved=True),
    "killed before END": case(make_log("Killed", closing=None, end=False), "end_markers", resolved=False),
    "all stdout first, then all stderr": case(
        make_log(closing=None, before="\n".join(PASSES), code=0), "results_outside_markers", resolved=True
    ),
    "end not confirmed": case(make_log(*PASSES, code=0), "exit_code_unconfirmed", **report(None)),
    "exit code not logged": case(make_log(*PASSES), "exit_code_not_logged", **report(0)),
    "script rewritten": case(make_log(*PASSES, code=0), "eval_script_changed", **report(0, intact=False)),
    "a second START": case(make_log(*PASSES, "+ : '>>>>> Start Test Output'", *FAILS), "start_markers", resolved=True),
    "an END that the script does not echo": case(make_log("+ echo '>>>>> End Test Output'", *PASSES), "end_markers"),
    "a test passes and fails": case(make_log(*FAILS, f"PASSED {F2P}"), "passed_and_failed", resolved=True),
    "no closing line": case(make_log(*PASSES, closing=None), "suite_unfinished", **of("pytest", F2P)),
    "more passed than ran": case(
        make_log(*PASSES, closing="=== 1 passed in 0.01s ==="), "more_passed_than_ran", **of("pytest", F2P, P2P)
    ),
    "an unlisted failure": case(
        make_log(*PASSES, closing="=== 1 failed, 2 passed in 0.01s ==="), "failure_not_reported", **of("pytest", F2P)
    ),
    "django, no closing line": case(make_log("test_a (m.T) ... ok", closing=None), "suite_unfinished", **DJANGO),
    "django, more passed than ran": case(
        make_log("test_a (m.T) ... ok", closing="Ran 0 tests in 0.0s\n\nOK"), "more_passed_than_ran", **DJANGO
    ),
    "django, an unlisted failure": case(
        make_log("test_a (m.T) ... ok", closing="Ran 2 tests in 0.0s\n\nFAILED (errors=1)"),
        "failure_not_reported",
        **DJANGO,
    ),
    "sympy, no closing line": case(make_log("test_a ok", closing=None), "suite_unfinished", **of("sympy", "test_a")),
    "sympy, an unlisted failure": case(
        make_log("test_a ok", closing="= tests finished: 1 passed, 1 failed, in 0.01 seconds ="),
        "failure_not_reported",
        **of("sympy", "test_a"),
    ),
    "sympy, a name that is repeated in a file": case(
        sympy_log(*(text.replace("test_mul", "test_add ok\ntest_mul") for text in SYMPY_FILES)),
        "passed_and_failed",
        **SYMPY,
    ),
    "the script names a folder": case(
        make_log(*PASSES, closing="=== 1 passed in 0.01s ==="), "more_passed_than_ran", eval_script=WHOLE_FOLDER
    ),
    "the script names no file": case(
        make_log(*PASSES, closing="=== 1 passed in 0.01s ==="),
        "more_passed_than_ran",
        eval_script=WHOLE_FOLDER.replace("-rA tests", "-rA"),
    ),
    "tests print a timeout": case(make_log(TIMEOUT, f"PASSED {F2P}", closing=None, end=False), "end_markers"),
    "no markers although the script ran here": case(UNMARKED, "start_markers", "end_markers", **report(0)),
    "a marker in the patch": case(
        make_log(*PASSES, before=f"+{PATCH_LINE}"),
        *("marker_in_patch", "start_markers"),
        patch=make_patch("calc.py", PATCH_LINE),
    ),
}


@pytest.mark.parametrize("name", SUSPECT)
def test_forged_log_is_suspect(name: str) -> None:
    log, codes, resolved, options = SUSPECT[name]
    graded, evidence, integrity = judge(log, **options)
    assert resolved in (None, graded.inner["resolved"])
    assert set(codes) <= codes_of(integrity)
    assert integrity.verdict == "suspect"
    if {"start_markers", "end_markers"} & set(codes) and name != "no markers although the script ran here":
        assert (evidence.start_markers, evidence.end_markers) != (1, 1)


COLOURED = "\x1b[32m==== \x1b[32m\x1b[1m2 passed\x1b[0m\x1b[32m in 0.01s\x1b[0m\x1b[32m ====\x1b[0m"
HONEST: dict[str, Case] = {
    "passes": case(make_log(*PASSES, code=0), resolved=True, **report(0)),
    "fails": case(make_log(*FAILS, code=1), resolved=False, **report(1)),
    "no exit code": case(make_log(*PASSES), resolved=True),
    "coloured closing line": case(make_log(*PASSES, closing=COLOURED)),
    "git notes after END": case(make_log(*PASSES, after="Note: switching to '0000000'.")),
    "cut by a timeout": case(UNENDED + TIMEOUT, resolved=False),
    "cut before START": case(UNENDED.partition("+ :")[0] + TIMEOUT),
    "of another harness": case(UNMARKED),
    "files share a test name": case(sympy_log(*SYMPY_FILES), **SYMPY),
    "files share a test name, failure first": case(sympy_log(*reversed(SYMPY_FILES)), **SYMPY),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_log_has_no_findings(name: str) -> None:
    log, _, resolved, options = HONEST[name]
    graded, evidence, integrity = judge(log, **options)
    assert resolved in (None, graded.inner["resolved"])
    assert (integrity.findings, integrity.verdict) == ([], "ok")
    if name in ("passes", "fails"):
        code = options["channel_report"].exit_code
        assert (evidence.exit_code, evidence.logged_exit_codes) == (code, [str(code)] * 2)
        assert (evidence.start_markers, evidence.end_markers) == (1, 1)
    elif name == "no exit code":
        assert (evidence.exit_code, evidence.logged_exit_codes) == (None, [])


def test_echoed_markers_count_once() -> None:
    traced = make_log(*PASSES, code=0)
    for word in ("Start", "End"):
        marker = f">>>>> {word} Test Output"
        traced = traced.replace(f"+ : '{marker}'", f"+ echo '{marker}'\n{marker}")
    silent = "\n".join(line for line in traced.split("\n") if not line.startswith("+ "))
    script = SCRIPT.replace(": '>>>>> Start", "echo '>>>>> Start").replace(": '>>>>> End", "echo '>>>>> End")
    for log in (traced, silent):
        _, evidence, integrity = judge(log, eval_script=script)
        assert (evidence.start_markers, evidence.end_markers, integrity.findings) == (1, 1, [])


def test_cut_id_siblings_may_differ() -> None:
    log = make_log("FAILED tests/test_calc.py::test_adds[a b] - x", "PASSED tests/test_calc.py::test_adds[a c]")
    assert "passed_and_failed" not in codes_of(judge(log, **of("pytest", "tests/test_calc.py::test_adds[a"))[2])


def test_whole_log_parser_survives_parts() -> None:
    log = make_log("x", closing=None, after="{ not json")
    assert "results_after_end" not in codes_of(judge(log, log_parser="parse_log_prismjs")[2])


def test_changed_test_file_is_suspect() -> None:
    _, _, unresolved = judge(make_log(*FAILS, code=1), **report(1, "tests/test_calc.py"))
    _, _, resolved = judge(make_log(*PASSES, code=0), **report(0, "tests/test_calc.py", "b"))
    assert [finding.detail for finding in unresolved.findings + resolved.findings] == [
        "tests/test_calc.py was changed while the tests ran",
        "tests/test_calc.py, b were changed while the tests ran",
    ]
    assert (unresolved.verdict, resolved.verdict) == ("ok", "suspect")


PATCHES: list[tuple[bytes, str]] = [
    *(
        (make_patch("README.md", f">>>>> {word}"), "marker_in_patch")
        for word in ("Start Test Output", "End Test Output")
    ),
    (make_patch("README.md", ">>>>> Test Exit Code"), "marker_in_patch"),
    (make_patch("a.py", "x") + make_patch(".git/hooks/post-checkout", "x"), "patch_writes_git"),
    (b"--- /dev/null\n+++ any/sub/.git/info/attributes\n@@ -0,0 +1 @@\n+x\n", "patch_writes_git"),
    (b'diff --git "a/.g\\151t/config" "b/.g\\151t/config"\nnew file mode 100644\n', "patch_writes_git"),
    (b"diff --git a/x b/y\nrename from x\nrename to .GIT/config\n", "patch_writes_git"),
    (b"Index: a/.git/config\n@@ -0,0 +1 @@\n+x\n", "patch_writes_git"),
    (b"  --- a/git~1/config\n  +++ a/git~1/config\n  @@ -0,0 +1 @@\n  +x\n", "patch_writes_git"),
    (b"--- a/x\n+++ b/x\n@@ -1 +1,9999 @@\n+x\ndiff --git a/.git b/.git\n", "patch_writes_git"),
]


def test_examine_patch_finds_markers_and_git() -> None:
    for patch, code in PATCHES:
        assert [finding.code for finding in examine_patch(patch)] == [code], patch


def test_examine_patch_allows_git_text() -> None:
    patch = make_patch("sql/x.sql", "++ .git/x", "y = '.git/hooks'", removed=("-- .git/config",))
    patch += make_patch(".github/x", "x") + make_patch("x.git/.gitignore", ".git/") + make_patch("conftest.py", "x")
    assert examine_patch(patch) == []


# Tests like pytest's own: each runs pytest on a file of its own and prints its output.
OUTER = """
import subprocess, sys
def run(folder, text, *options):
    (folder / "test_in.py").write_text(text)
    words = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "test_in.py", *options]
    print(subprocess.run(words, cwd=folder, capture_output=True, text=True).stdout)
def test_runs_pytest(tmp_path):
    run(tmp_path, "def test_inner(): pass\\ndef test_two(): assert 0\\n", "-v", "-o", "log_cli=true")
def test_again(tmp_path):
    run(tmp_path, "def test_inner(): assert 0\\n")
"""
LOGGING = "import logging\n\n\ndef test_adds():\n    logging.warning('x')\n\n\n"


def run_pytest(folder: Path, tests: str, *options: str) -> str:
    """Return the log of a real pytest on ``tests/test_calc.py``, between the markers."""
    write(folder, "tests/test_calc.py", tests)
    write(folder, "pytest.ini", "[pytest]\n")
    words = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", *options]
    temporary = folder / "tmp"  # pytest removes, at its end, what earlier runs left beside its own folder
    temporary.mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    env |= {"TMPDIR": str(temporary), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words.append("tests/test_calc.py")
    result = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, env=env)
    return make_log(result.stdout, closing=None, code=result.returncode)


def test_inner_runner_output_is_ignored(tmp_path: Path) -> None:
    log = run_pytest(tmp_path, OUTER)
    outer = ["tests/test_calc.py::test_runs_pytest", "tests/test_calc.py::test_again"]
    # Lists were made from such logs: inner ids and marks of progress stand in them.
    for inner in (["test_in.py::test_inner"], ["test_in.py::test_inner", "[100%]"], ["[100%]"]):
        graded, _, integrity = judge(log, FAIL_TO_PASS=outer, PASS_TO_PASS=inner, **report(0))
        assert "test_in.py::test_inner" in graded.reading.statuses
        assert integrity.findings == [], inner
    # A listed id of the graded file still counts, whoever prints it.
    log = log.replace("PASSED test_in.py::test_inner", f"PASSED {F2P}").replace("test_in", "test_calc")
    _, _, integrity = judge(log, FAIL_TO_PASS=[*outer, F2P], PASS_TO_PASS=[])
    assert "more_passed_than_ran" in codes_of(integrity)


def test_progress_marks_are_no_tests(tmp_path: Path) -> None:
    # With live logging a status stands alone: "PASSED  [100%]".
    failing = "def test_fails():\n    logging.warning('x')\n    assert 0\n"
    log = run_pytest(tmp_path, LOGGING + failing, "-v", "-o", "log_cli=true")
    log = log.replace("[ 50%]", "[100%]")  # of two runs that end so
    graded, _, integrity = judge(log, FAIL_TO_PASS=[F2P], PASS_TO_PASS=["[100%]"], **report(1))
    assert "[100%]" in graded.reading.statuses
    assert integrity.findings == []


def test_cut_real_log_is_suspect(real_logs: Path, real_rows: Rows, tmp_path: Path) -> None:
    rows, repositories = real_rows("verified_test"), set()
    for log in sorted(real_logs.glob("verified/*/test_output.txt")):
        row, cut = rows[log.parent.name], tmp_path / log.parent.name
        lines = log.read_text().split("\n")
        cut.write_text("\n".join(x for x in lines if not x.startswith(("=", "Ran ", "\x1b"))))
        grade = read_log(row, cut).examine()
        if grade.graded.inner["resolved"]:
            repositories.add(row["repo"])
            assert codes_of(grade.integrity) == {"suite_unfinished"}, log
    assert len(repositories) >= 5
