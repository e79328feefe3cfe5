"""Logs that were made to deceive, and honest ones that only look odd."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.grading.exit_code_channel import ChannelReport
from swe_argo.steps.grading.integrity import examine_patch
from swe_argo.steps.grading.saved_logs import grade_saved
from tests.steps.grading.logs import F2P, P2P, SCRIPT, codes_of, judge, make_log, make_patch

PASSES = (f"PASSED {F2P}", f"PASSED {P2P}")
FAILS = (f"FAILED {F2P} - assert 1 == 5", f"PASSED {P2P}")
FAKE_CODE = ">>>>> Test Exit Code: 0"
END = "+ : '>>>>> End Test Output'"


def channel_report(code: int | None, *, intact: bool = True) -> ChannelReport:
    return ChannelReport(code, intact)


def test_honest_log_is_ok() -> None:
    for code, results in ((0, PASSES), (1, FAILS)):
        _, evidence, integrity = judge(make_log(*results, code=code), channel_report=channel_report(code))
        assert integrity.verdict == "ok"
        assert integrity.findings == []
        assert evidence.exit_code == code
        assert evidence.logged_exit_codes == [str(code), str(code)]
        assert (evidence.start_markers, evidence.end_markers) == (1, 1)


def test_log_without_exit_codes_is_ok() -> None:
    _, evidence, integrity = judge(make_log(*PASSES))
    assert integrity.verdict == "ok"
    assert evidence.exit_code is None
    assert evidence.logged_exit_codes == []


# The table of forged logs: (log, changes of the row, is it resolved, a finding that must be there)

FORGED: dict[str, tuple[str, dict[str, Any], bool, str]] = {
    "passed lines only, real exit 1": (
        make_log(*PASSES, closing=None, code=1),
        {},
        False,
        "failure_not_reported",
    ),
    "a fake exit code first": (make_log(FAKE_CODE, *PASSES, code=1), {}, True, "exit_code_before_end"),
    "END and a fake exit code before the real failures": (
        make_log(*PASSES, END, FAKE_CODE, *FAILS, code=1),
        {},
        True,
        "end_markers",
    ),
    "END before the real failures, no fake exit code": (
        make_log(*PASSES, END, *FAILS, code=1),
        {},
        False,
        "results_after_end",
    ),
    "a printed count where only failures are parsed": (
        make_log("  5 passing (3ms)", closing=None, code=1),
        {"eval_type": "fail_only", "log_parser": "parse_log_chart_js", "FAIL_TO_PASS": ["a"], "PASS_TO_PASS": []},
        True,
        "failure_not_reported",
    ),
    "F2P skipped": (make_log(f"SKIPPED {F2P}", f"PASSED {P2P}", code=0), {}, False, "tests_skipped"),
    "P2P skipped": (make_log(f"PASSED {F2P}", f"SKIPPED {P2P}", code=0), {}, True, "tests_skipped"),
    "killed before END": (make_log("Killed", closing=None, end=False), {}, False, "end_markers"),
    "all stdout first, then all stderr": (
        make_log(closing=None, before="\n".join(PASSES), code=0),
        {},
        True,
        "results_outside_markers",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_log_is_suspect(name: str) -> None:
    log, changes, resolved, code = FORGED[name]
    graded, _, integrity = judge(log, **changes)
    assert graded.inner["resolved"] is resolved
    assert code in codes_of(integrity)
    assert integrity.verdict == "suspect"


@pytest.mark.parametrize("name", ["a fake exit code first", "END and a fake exit code before the real failures"])
def test_channel_reveals_forged_code(name: str) -> None:
    log, changes, _, _ = FORGED[name]
    _, evidence, integrity = judge(log, channel_report=channel_report(1), **changes)
    assert evidence.exit_code == 1
    assert {"exit_code_mismatch", "exit_codes_differ", "exit_code_lines"} <= codes_of(integrity)


def test_unconfirmed_end_is_suspect() -> None:
    _, _, integrity = judge(make_log(*PASSES, code=0), channel_report=channel_report(None))
    assert codes_of(integrity) == {"exit_code_unconfirmed"}


def test_missing_exit_code_is_suspect() -> None:
    _, _, integrity = judge(make_log(*PASSES), channel_report=channel_report(0))
    assert codes_of(integrity) == {"exit_code_not_logged"}


def test_rewritten_script_is_suspect() -> None:
    _, _, integrity = judge(make_log(*PASSES, code=0), channel_report=channel_report(0, intact=False))
    assert codes_of(integrity) == {"eval_script_changed"}
    assert integrity.verdict == "suspect"


def test_second_start_marker_is_suspect() -> None:
    graded, evidence, integrity = judge(make_log(*PASSES, "+ : '>>>>> Start Test Output'", *FAILS))
    assert graded.inner["resolved"]
    assert evidence.start_markers == 2
    assert "start_markers" in codes_of(integrity)


def test_echoed_markers_count_once() -> None:
    traced = make_log(*PASSES, code=0)
    for word in ("Start", "End"):
        marker = f">>>>> {word} Test Output"
        traced = traced.replace(f"+ : '{marker}'", f"+ echo '{marker}'\n{marker}")
    silent = "\n".join(line for line in traced.split("\n") if not line.startswith("+ "))
    script = SCRIPT.replace(": '>>>>> Start", "echo '>>>>> Start").replace(": '>>>>> End", "echo '>>>>> End")
    for log in (traced, silent):
        _, evidence, integrity = judge(log, eval_script=script)
        assert (evidence.start_markers, evidence.end_markers) == (1, 1)
        assert integrity.findings == []


def test_unexpected_echo_is_a_forgery() -> None:
    _, evidence, integrity = judge(make_log("+ echo '>>>>> End Test Output'", *PASSES))
    assert evidence.end_markers == 2
    assert integrity.verdict == "suspect"


def test_pass_and_fail_is_suspect() -> None:
    graded, _, integrity = judge(make_log(*FAILS, f"PASSED {F2P}"))
    assert graded.inner["resolved"]
    assert codes_of(integrity) >= {"passed_and_failed"}


def test_cut_id_siblings_may_differ() -> None:
    cut = "tests/test_calc.py::test_adds[a"
    log = make_log("FAILED tests/test_calc.py::test_adds[a b] - x", "PASSED tests/test_calc.py::test_adds[a c]")
    _, _, integrity = judge(log, FAIL_TO_PASS=[cut], PASS_TO_PASS=[])
    assert "passed_and_failed" not in codes_of(integrity)


@pytest.mark.parametrize(
    ("parser", "results", "closing", "ids", "code"),
    [
        ("parse_log_pytest", PASSES, None, [F2P], "suite_unfinished"),
        ("parse_log_pytest", PASSES, "=== 1 passed in 0.01s ===", [F2P, P2P], "more_passed_than_ran"),
        ("parse_log_pytest", PASSES, "=== 1 failed, 2 passed in 0.01s ===", [F2P], "failure_not_reported"),
        ("parse_log_django", ("test_a (m.T) ... ok",), None, ["test_a (m.T)"], "suite_unfinished"),
        (
            "parse_log_django",
            ("test_a (m.T) ... ok",),
            "Ran 0 tests in 0.0s\n\nOK",
            ["test_a (m.T)"],
            "more_passed_than_ran",
        ),
        (
            "parse_log_django",
            ("test_a (m.T) ... ok",),
            "Ran 2 tests in 0.0s\n\nFAILED (errors=1)",
            ["test_a (m.T)"],
            "failure_not_reported",
        ),
        ("parse_log_sympy", ("test_a ok",), None, ["test_a"], "suite_unfinished"),
        (
            "parse_log_sympy",
            ("test_a ok",),
            "= tests finished: 1 passed, 1 failed, in 0.01 seconds =",
            ["test_a"],
            "failure_not_reported",
        ),
    ],
)
def test_count_mismatch_is_suspect(
    parser: str, results: tuple[str, ...], closing: str | None, ids: list[str], code: str
) -> None:
    log = make_log(*results, closing=closing)
    _, _, integrity = judge(log, log_parser=parser, FAIL_TO_PASS=ids, PASS_TO_PASS=[])
    assert code in codes_of(integrity)
    assert integrity.verdict == "suspect"


def test_coloured_closing_line_is_read() -> None:
    closing = "\x1b[32m==== \x1b[32m\x1b[1m2 passed\x1b[0m\x1b[32m in 0.01s\x1b[0m\x1b[32m ====\x1b[0m"
    _, _, integrity = judge(make_log(*PASSES, closing=closing))
    assert integrity.findings == []


def test_git_note_after_end_is_ignored() -> None:
    _, _, integrity = judge(make_log(*PASSES, after="Note: switching to '0000000'."))
    assert integrity.findings == []


def test_whole_log_parser_survives_parts() -> None:
    log = make_log("x", closing=None, after="{ not json")
    _, _, integrity = judge(log, log_parser="parse_log_prismjs")
    assert "results_after_end" not in codes_of(integrity)


def test_changed_test_file_is_suspect() -> None:
    _, _, unresolved = judge(make_log(*FAILS, code=1), channel_report=ChannelReport(1, True, ("tests/test_calc.py",)))
    _, _, resolved = judge(
        make_log(*PASSES, code=0), channel_report=ChannelReport(0, True, ("tests/test_calc.py", "b"))
    )
    assert [finding.detail for finding in unresolved.findings + resolved.findings] == [
        "tests/test_calc.py was changed while the tests ran",
        "tests/test_calc.py, b were changed while the tests ran",
    ]
    assert (unresolved.verdict, resolved.verdict) == ("ok", "suspect")


@pytest.mark.parametrize("word", [">>>>> Start Test Output", ">>>>> End Test Output", ">>>>> Test Exit Code"])
def test_examine_patch_finds_markers(word: str) -> None:
    assert [finding.code for finding in examine_patch(make_patch("README.md", word))] == ["marker_in_patch"]


@pytest.mark.parametrize(
    "patch",
    [
        make_patch("a.py", "x") + make_patch(".git/hooks/post-checkout", "x"),
        b"--- /dev/null\n+++ any/sub/.git/info/attributes\n@@ -0,0 +1 @@\n+x\n",
        b'diff --git "a/.g\\151t/config" "b/.g\\151t/config"\nnew file mode 100644\n',
        b"diff --git a/x b/y\nrename from x\nrename to .GIT/config\n",
        b"Index: a/.git/config\n@@ -0,0 +1 @@\n+x\n",
        b"  --- a/git~1/config\n  +++ a/git~1/config\n  @@ -0,0 +1 @@\n  +x\n",
        b"--- a/x\n+++ b/x\n@@ -1 +1,9999 @@\n+x\ndiff --git a/.git b/.git\n",
    ],
    ids=range(7),
)
def test_examine_patch_finds_git_files(patch: bytes) -> None:
    assert [finding.code for finding in examine_patch(patch)] == ["patch_writes_git"]


def test_examine_patch_allows_git_text() -> None:
    patch = make_patch("sql/x.sql", "++ .git/x", "y = '.git/hooks'", removed=("-- .git/config",))
    patch += make_patch(".github/x", "x") + make_patch("x.git/.gitignore", ".git/") + make_patch("conftest.py", "x")
    assert examine_patch(patch) == []


def test_marker_in_patch_is_suspect() -> None:
    line = 'print(">>>>> Start Test Output")'
    _, evidence, integrity = judge(make_log(*PASSES, before=f"+{line}"), make_patch("calc.py", line))
    assert evidence.start_markers == 2
    assert {"marker_in_patch", "start_markers"} <= codes_of(integrity)


def test_real_logs_are_not_suspect(real_logs: Path, real_rows: Callable[[str], dict[str, dict[str, Any]]]) -> None:
    rows = {"verified": real_rows("verified_test"), "lite": {**real_rows("lite_test"), **real_rows("lite_dev")}}
    logs = sorted(real_logs.glob("*/*/test_output.txt"))
    grades = {
        log.parent.name: grade_saved(rows[log.parent.parent.name][log.parent.name], log, log.with_name("patch.diff"))
        for log in logs
    }
    alarms = {name: codes_of(grade.integrity) for name, grade in grades.items() if grade.integrity.findings}
    assert alarms == {}


def test_cut_real_log_is_suspect(
    real_logs: Path, real_rows: Callable[[str], dict[str, dict[str, Any]]], tmp_path: Path
) -> None:
    rows = real_rows("verified_test")
    repositories = set()
    for log in sorted(real_logs.glob("verified/*/test_output.txt")):
        row = rows[log.parent.name]
        cut = tmp_path / log.parent.name
        lines = log.read_text().split("\n")
        cut.write_text("\n".join(x for x in lines if not x.startswith(("=", "Ran ", "\x1b"))))
        grade = grade_saved(row, cut)
        if grade.graded.inner["resolved"]:
            repositories.add(row["repo"])
            assert codes_of(grade.integrity) == {"suite_unfinished"}, log
    assert len(repositories) >= 5
