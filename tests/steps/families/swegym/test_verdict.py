"""SWE-Gym's verdict: every real log, the corners of the rule, and what forged logs come to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.families.swegym.verdict import judge, parse_statuses
from tests.paths import needs_data
from tests.steps.families.swegym.make_rows import REAL, make_row, read_rows

X, Y = "tests/test_a.py::test_x", "tests/test_a.py::test_y[a::b]"
APPLIED = "Applied patch tests/test_a.py cleanly.\nApplied patch tests/new.json cleanly.\n"
PASSED = f"PASSED {X}\nPASSED {Y}\n"


@needs_data
@pytest.mark.parametrize("run", ["empty", "gold"])
@pytest.mark.parametrize("name", sorted(read_rows()))
def test_real_logs_have_their_verdict(name: str, run: str) -> None:
    folder = REAL / "logs" / name
    report = json.loads((folder / "expected_swegym.json").read_text())[run]
    verdict = judge((folder / f"test_output.{run}.txt").read_text(), read_rows()[name])
    assert verdict.resolved == report["resolved"]
    assert verdict.reward == float(run == "gold")
    expected = {key: report["tests_status"][key] for key in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    assert {key: result._asdict() for key, result in verdict.lists.items()} == expected
    assert list(verdict.differences) == [test for result in expected.values() for test in result["failure"]]
    assert not verdict.findings
    assert not verdict.unreadable


@pytest.mark.parametrize(
    ("lines", "differences", "resolved"),
    [
        (PASSED, {}, True),
        (PASSED.replace("PASSED", "XFAIL"), {}, True),
        (f"PASSED {X}\n", {Y: (None, "PASSED")}, False),
        (f"PASSED {X}\nFAILED {Y} - E: x\n", {Y: ("FAILED", "PASSED")}, False),
        (f"ERROR {X} - E\r\nPASSED {Y}\r\n", {X: ("ERROR", "PASSED")}, False),
        (f"PASSED {X}\nSKIPPED {Y}\n", {Y: ("SKIPPED", "PASSED")}, True),
        (f"\x1b[32mPASSED\x1b[0m {X}\nPASSED {Y}\n", {X: (None, "PASSED")}, False),
    ],
)
def test_lists_are_judged_as_swe_bench(lines: str, differences: dict[str, Any], resolved: bool) -> None:
    verdict = judge(APPLIED + lines, make_row())
    assert verdict.differences == differences
    assert verdict.resolved == resolved


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (PASSED, "no test patch was applied"),
        (f"{APPLIED}{PASSED}>>>>> Tests Timed Out", "the log contains 'Tests Timed Out'"),
        (f"{APPLIED}{PASSED}>>>>> Patch Apply Failed", "the log contains 'Patch Apply Failed'"),
    ],
)
def test_unreadable_log_is_unresolved(log: str, reason: str) -> None:
    verdict = judge(log, make_row())
    assert (verdict.resolved, verdict.unreadable) == (False, reason)
    assert list(verdict.differences) == [X, Y]


def test_timeout_is_unresolved() -> None:
    assert judge(APPLIED + PASSED, make_row(), timed_out=True).unreadable == "the tests timed out"


def test_results_follow_the_old_marker() -> None:
    assert not judge(f"{APPLIED}{PASSED}>>>>> Applied Patch (pred)\n", make_row()).resolved


def test_contradictions_are_a_finding() -> None:
    """There are no markers: whoever prints last has the last word, after the tests' end too."""
    verdict = judge(f"{APPLIED}FAILED {X} - E\nPASSED {Y}\n== 1 failed ==\nPASSED {X}\n", make_row())
    assert verdict.resolved  # the rule's word
    assert [finding.code for finding in verdict.findings] == ["passed_and_failed"]


def test_forged_apply_line_is_a_finding() -> None:
    """The script prints the difference to the base commit, so an agent can say it where git says that it failed."""
    log = f"+# applied patch\nerror: tests/new.json: already exists in working directory\n{PASSED}"
    verdict = judge(log, make_row())
    assert verdict.resolved  # the rule's word
    assert [finding.code for finding in verdict.findings] == ["test_patch_not_applied"]


def test_skipped_tests_are_a_finding() -> None:
    verdict = judge(APPLIED + PASSED.replace("PASSED", "SKIPPED"), make_row())
    assert verdict.resolved  # the rule's word: both lists are empty, and count as whole
    assert [finding.code for finding in verdict.findings] == ["tests_skipped"]


pieces = st.sampled_from([APPLIED, PASSED, X, " - ", "PASSED", "FAILED ", "SKIPPED [1] a", "\r\n", "\x1b[31m", "::"])


@given(st.lists(pieces | st.text(max_size=4), max_size=20).map("".join))
def test_any_text_is_a_verdict(log: str) -> None:
    verdict = judge(log, make_row())
    assert verdict.reward in (0.0, 1.0)
    assert bool(verdict.unreadable) == (not verdict.lists)


ids = st.text("ab[]:/.", min_size=1, max_size=12).filter(lambda name: name[0] != "[")


@given(st.dictionaries(ids, st.sampled_from(["PASSED", "FAILED", "ERROR", "XFAIL", "SKIPPED"]), max_size=8))
def test_pytest_lines_round_trip(statuses: dict[str, str]) -> None:
    reasons = {"FAILED": " - E: x", "XFAIL": " - why"}
    lines = "".join(f"{status} {test}{reasons.get(status, '')}\r\n" for test, status in statuses.items())
    assert parse_statuses(lines) == statuses
