"""SWE-smith's verdict: every real evaluation, the parsers, and what forged logs come to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.family_verdict import FamilyVerdict
from swe_argo.steps.families.swesmith.family import FAMILY
from swe_argo.steps.families.swesmith.profiles import parse_go, parse_pytest, profile_of
from swe_argo.steps.families.swesmith.verdict import judge, marked_region
from tests.paths import needs_data
from tests.steps.families.swesmith.make_rows import REAL, make_row, read_log, read_row

START, END = "+ : '>>>>> Start Test Output'\n", "+ : '>>>>> End Test Output'\n"
X, Y, Z = "tests/test_a.py::test_x", "tests/test_b.py::test_y[1]", "tests/test_a.py::test_z"
PASSED = "".join(f"{test} PASSED   [ 1%]\n" for test in (X, Y, Z))


def refusal_reason(row: dict[str, Any]) -> str | None:
    """As ``plan`` asks."""
    return FAMILY.why_not_gradeable(FAMILY.normalise(row, "r"))


def compare(verdict: FamilyVerdict, report: dict[str, Any]) -> None:
    assert verdict.resolved == report["resolved"]
    assert verdict.reward == float(report["resolved"])
    expected = {name: report["tests_status"][name] for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    assert {name: result._asdict() for name, result in verdict.lists.items()} == expected
    failed = [test for result in expected.values() for test in result["failure"]]
    assert list(verdict.differences) == failed
    assert not verdict.findings
    assert not verdict.unreadable


def folders(name: str) -> list[Path]:
    return sorted((REAL / name).iterdir()) if (REAL / name).is_dir() else []


@needs_data
@pytest.mark.parametrize("folder", folders("evaluations"), ids=lambda folder: folder.name)
def test_real_evaluations_have_verdicts(folder: Path) -> None:
    report = json.loads((folder / "expected_swesmith_0.0.9.json").read_text())
    compare(judge(read_log(folder), read_row(folder)), report)


@needs_data
@pytest.mark.parametrize("folder", folders("rebuilt"), ids=lambda folder: folder.name)
@pytest.mark.parametrize("run", ["bug", "gold"])
def test_rebuilt_runs_have_verdicts(folder: Path, run: str) -> None:
    report = json.loads((folder / "expected_swesmith_0.0.9.json").read_text())[run]
    compare(judge(read_log(folder, f"test_output.{run}.txt"), read_row(folder)), report)


@needs_data
def test_real_bug_fails_and_fix_passes() -> None:
    """The validation pair of a real instance: the log with the bug fails its tests, the one without passes all."""
    (folder,) = folders("validation")
    row = read_row(REAL / "evaluations" / folder.name)
    assert list(judge(read_log(folder), row).differences) == row["FAIL_TO_PASS"]
    assert judge(read_log(folder, "test_output_pre_gold.txt"), row).resolved


@needs_data
@pytest.mark.parametrize(("name", "parse"), [("django-money", parse_pytest), ("gin-gonic", parse_go)])
def test_real_logs_are_parsed(name: str, parse: Any) -> None:
    (log,) = (REAL / "parser_logs").glob(f"{name}*.txt")
    (expected,) = (REAL / "parser_logs").glob(f"{name}*.json")
    region, refusal = marked_region(log.read_text())
    assert dict(parse(region if not refusal else log.read_text())) == json.loads(expected.read_text())


@pytest.mark.parametrize(
    ("line", "results"),
    [
        ("a.py::b PASSED [ 1%]", [("a.py::b", "PASSED")]),
        ("a.py::b[x::y-z] XFAIL (why)\r", [("a.py::b[x::y-z]", "XFAIL")]),
        ("a.py::b \x1b[32mPASSED\x1b[0m", []),
        ("a.py::b[x y] PASSED", []),
        ("[gw0] PASSED a.py::b", [("[gw0]", "PASSED")]),
        ("a.py::b XPASS", []),
        (" a.py::b PASSED", []),
    ],
)
def test_pytest_line_is_id_and_status(line: str, results: list[Any]) -> None:
    assert parse_pytest(line) == results


@pytest.mark.parametrize(
    ("line", "results"),
    [
        ("=== RUN   TestA", []),
        ("    --- PASS: TestA/b_c (0.00s)\r", [("TestA/b_c", "PASSED")]),
        ("--- FAIL: TestA (0.00s)", [("TestA", "FAILED")]),
        ("--- SKIP: TestA (0.00s)", [("TestA", "SKIPPED")]),
        ("FAIL\tgithub.com/a/b\t0.1s", [("github.com/a/b", "FAILED")]),
        ("FAIL", []),
    ],
)
def test_go_line_may_be_indented(line: str, results: list[Any]) -> None:
    assert parse_go(line) == results


@pytest.mark.parametrize(
    ("lines", "differences"),
    [
        (PASSED, {}),
        (PASSED.replace(f"{X} PASSED", f"{X} XFAIL"), {}),
        (PASSED.replace(f"{X} PASSED", f"{X} FAILED"), {X: ("FAILED", "PASSED")}),
        (PASSED.replace(f"{Y} PASSED", f"{Y} ERROR"), {Y: ("ERROR", "PASSED")}),
        (PASSED.replace(f"{Z} PASSED", "other"), {Z: (None, "PASSED")}),
    ],
)
def test_every_listed_test_must_pass(lines: str, differences: dict[str, Any]) -> None:
    verdict = judge(f"{START}{lines}{END}", make_row())
    assert verdict.differences == differences
    assert verdict.resolved == (not differences)


def test_skipped_test_does_not_pass() -> None:
    """swesmith 0.0.9 counts the list without it: a patch that skips all tests would be a fix there."""
    verdict = judge(START + PASSED.replace("PASSED", "SKIPPED") + END, make_row())
    assert not verdict.resolved
    assert verdict.lists["FAIL_TO_PASS"] == ([], [])
    assert [finding.code for finding in verdict.findings] == ["tests_skipped"]


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (PASSED, "the log lacks the script's markers"),
        (END + PASSED + START, "the script's markers are in the wrong order"),
        (">>>>> Start Test Output" + PASSED + END, "the script's markers are in the wrong order"),
        (START + PASSED + END + ">>>>> Tests Timed Out: 90 seconds exceeded", "the tests timed out"),
        (">>>>> Patch Apply Failed" + START + PASSED + END, "the log reports that the patch does not apply"),
    ],
)
def test_unreadable_log_is_unresolved(log: str, reason: str) -> None:
    verdict = judge(log, make_row())
    assert (verdict.resolved, verdict.unreadable) == (False, reason)
    assert list(verdict.differences) == [X, Y, Z]


def test_timeout_is_unresolved() -> None:
    assert judge(START + PASSED + END, make_row(), timed_out=True).unreadable == "the tests timed out"


def test_later_results_are_a_finding() -> None:
    """Whoever prints last between the markers has the last word: of one test the last status counts."""
    failed = PASSED.replace("PASSED", "FAILED")
    verdict = judge(START + failed + PASSED + END, make_row())
    assert verdict.resolved  # the rule's word
    assert [finding.code for finding in verdict.findings] == ["passed_and_failed"]


def test_forged_end_is_a_finding() -> None:
    verdict = judge(START + PASSED + END + PASSED.replace("PASSED", "FAILED") + END, make_row())
    assert verdict.resolved  # the rule's word: the first END counts
    assert [finding.code for finding in verdict.findings] == ["end_markers"]


def test_text_outside_markers_is_ignored() -> None:
    failed = PASSED.replace("PASSED", "FAILED")
    assert not judge(PASSED + START + failed + END + PASSED, make_row()).resolved


def test_profiles_match_swesmith() -> None:
    moto = make_row(repo="swesmith/getmoto__moto.694ce1f4")
    assert profile_of(moto).names_test_files
    assert profile_of(make_row()).timeout_s == 90
    go = make_row(patch=make_row()["patch"].replace("a.py", "a.go"))
    assert profile_of(go).test_command == "go test -v ./..."
    paramiko = profile_of(make_row(repo="swesmith/paramiko__paramiko.23f92003"))
    assert paramiko.parse("PASSED a.py::b[x y]") == [("a.py::b[x", "PASSED")]
    autograd = profile_of(make_row(repo="swesmith/HIPS__autograd.ac044f0d"))
    assert autograd.parse("[gw1] PASSED a.py::b") == [("a.py::b", "PASSED")]


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"repo": "swesmith/tornadoweb__tornado.d5ac65c1"}, "tornadoweb__tornado.d5ac65c1 needs its own test command"),
        ({"patch": make_row()["patch"].replace("a.py", "a.rs")}, "is neither Python nor Go (its bug changes .rs)"),
    ],
)
def test_unknown_profile_is_refused(columns: dict[str, Any], word: str) -> None:
    row = make_row(**columns)
    assert word in str(refusal_reason(row))
    assert refusal_reason(make_row()) is None
    with pytest.raises(ConfigError):
        judge("", row)


pieces = st.sampled_from([START, END, PASSED, X, " ", "PASSED", "FAILED", "\r\n", "\x1b[31m", "--- PASS: T", "FAIL:"])


@given(st.lists(pieces | st.text(max_size=4), max_size=20).map("".join))
def test_any_text_is_a_verdict(log: str) -> None:
    for row in (make_row(), make_row(patch=make_row()["patch"].replace("a.py", "a.go"))):
        verdict = judge(log, row)
        assert verdict.resolved == (not verdict.differences)


ids = st.text("ab[]:-/.", min_size=1, max_size=12)


@given(st.dictionaries(ids, st.sampled_from(["PASSED", "FAILED", "ERROR", "XFAIL", "SKIPPED"]), max_size=8))
def test_pytest_lines_round_trip(statuses: dict[str, str]) -> None:
    lines = "".join(f"{test} {status}{' ' * 9}[ 50%]\r\n" for test, status in statuses.items())
    assert dict(parse_pytest(lines)) == statuses
