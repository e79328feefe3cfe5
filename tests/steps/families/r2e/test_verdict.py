"""R2E-Gym's reward: every real log, the odd corners of the rule, and what forged logs come to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.families.r2e.verdict import judge
from tests.paths import DATA, needs_data

REAL = DATA / "r2e"
TITLE = "=========================== short test summary info ============================\n"


def make_row(expected: dict[str, str]) -> dict[str, Any]:
    return {"repo_name": "pillow", "commit_hash": "a" * 40, "expected_output_json": json.dumps(expected)}


def real_logs() -> list[Path]:
    return sorted(log for log in REAL.glob("*/out.*.txt") if (log.parent / "row_real.json").is_file())


@needs_data
@pytest.mark.parametrize("log", real_logs(), ids=lambda log: f"{log.parent.name}-{log.suffixes[0][1:]}")
def test_real_logs_have_their_reward(log: Path) -> None:
    expected = json.loads((log.parent / "expected_rewards.json").read_text())[log.suffixes[0][1:]]
    verdict = judge(log.read_text(), json.loads((log.parent / "row_real.json").read_text()))
    assert verdict.reward == expected["reward"]
    assert len(verdict.statuses) == expected["parsed"]
    assert {key: list(both) for key, both in verdict.differences.items()} == expected["mismatches"]
    assert not verdict.findings


@needs_data
def test_name_excludes_failure_reason() -> None:
    folder = REAL / "sympy_003029fe"
    expected = json.loads((folder / "status_map.json").read_text())
    verdict = judge((folder / "out.new_commit.txt").read_text(), make_row(expected))
    assert verdict.statuses == expected
    assert verdict.resolved


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("PASSED r2e_tests/test_1.py::A::b", {"A.b": "PASSED"}),
        ("\x1b[32mPASSED\x1b[0m r2e_tests/test_1.py::\x1b[1mb\x1b[0m", {"b": "PASSED"}),
        ("PASSED t.py::b\r\nFAILED t.py::c - E: x\r\n", {"b": "PASSED", "c": "FAILED"}),
        ("PASSED t.py::b[x::y]", {"b[x.y]": "PASSED"}),
        ("PASSED t.py::b[x - y]", {"b[x - z]": "PASSED"}),
        ("ERROR t.py::b - E", {"b": "ERROR"}),
        ("ERROR r2e_tests/test_1.py - ImportError", {"": "ERROR"}),
        ("SKIPPED [1] t.py:3: no\nXFAIL t.py::x\nPASSED t.py::b", {"b": "PASSED"}),
        ("PASSED t.py::b", {"\x1b[32mb": "PASSED"}),
    ],
)
def test_summary_lines_match_r2e_gym(lines: str, expected: dict[str, str]) -> None:
    verdict = judge(f"...\n{TITLE}{lines}\n== 1 passed in 0.1s ==\n", make_row(expected))
    assert verdict.resolved, verdict
    assert verdict.reward == 1.0


@pytest.mark.parametrize(
    ("lines", "differences"),
    [
        ("PASSED t.py::a", {"b": (None, "FAILED")}),
        ("PASSED t.py::a\nPASSED t.py::b", {"b": ("PASSED", "FAILED")}),
        ("PASSED t.py::a\nFAILED t.py::b\nPASSED t.py::c", {"c": ("PASSED", None)}),
        ("PASSED t.py::a\nPASSED t.py::c", {"b": (None, "FAILED"), "c": ("PASSED", None)}),
    ],
)
def test_statuses_must_match_both_ways(lines: str, differences: dict[str, Any]) -> None:
    verdict = judge(TITLE + lines, make_row({"a": "PASSED", "b": "FAILED"}))
    assert verdict.reward == 0.0
    assert verdict.differences == differences


def test_unreadable_run_is_unresolved() -> None:
    row = make_row({"a": "PASSED"})
    assert judge("PASSED t.py::a\n", row).unreadable == "pytest printed no summary"
    late = judge(f"{TITLE}PASSED t.py::a\n", row, timed_out=True)
    assert not late.resolved
    assert not late.statuses
    assert late.unreadable == "the tests timed out"


def test_repeated_summary_is_a_finding() -> None:
    """Under -rA pytest prints what passing tests wrote above its summary, so a test or a patch can be first."""
    forged = f"== PASSES ==\n{TITLE}PASSED t.py::a\nPASSED t.py::b\n{TITLE}PASSED t.py::a\nFAILED t.py::b\n"
    verdict = judge(forged, make_row({"a": "PASSED", "b": "PASSED"}))
    assert verdict.resolved  # R2E-Gym's rule; its reward for this log is 1.0
    assert [finding.code for finding in verdict.findings] == ["summary_repeated"]


def test_nameless_line_is_a_finding() -> None:
    """The empty key counts in the sizes and is not compared: any line with the word ERROR fills a gap."""
    verdict = judge(f"{TITLE}PASSED t.py::a\nsome ERROR\n", make_row({"a": "PASSED", "b": "PASSED"}))
    assert verdict.resolved
    assert [finding.code for finding in verdict.findings] == ["tests_missing"]


def test_forged_line_changes_one_result() -> None:
    """Standard error may stand behind the summary, and the last line of a name counts."""
    row = make_row({"a": "PASSED", "b": "PASSED"})
    log = f"{TITLE}PASSED t.py::a\nFAILED t.py::b - E\n== 1 failed, 1 passed in 0.1s ==\n"
    assert not judge(log, row).resolved
    assert judge(f"{log}PASSED t.py::b\n", row).resolved  # the rule's word: tests run in the process that prints


words = st.sampled_from(
    ["PASSED", "FAILED", "ERROR", "::", " - ", "\n", "\r\n", "\x1b[31m", "short test summary info", "t.py", "[", "]"]
)


@given(st.lists(words | st.text(max_size=5), max_size=30).map("".join))
def test_any_text_is_a_verdict(log: str) -> None:
    verdict = judge(log, make_row({"a": "PASSED"}))
    assert verdict.reward in (0.0, 1.0)
    assert verdict.resolved or verdict.differences


names = st.text("ab[]/-.", min_size=1, max_size=8)


@given(st.dictionaries(names, st.sampled_from(["PASSED", "FAILED", "ERROR"]), min_size=1, max_size=8))
def test_expected_summary_is_rewarded(
    expected: dict[str, str],
) -> None:
    lines = "".join(f"{status} r2e_tests/test_1.py::{test}\r\n" for test, status in expected.items())
    assert judge(TITLE + lines, make_row(expected)).reward == 1.0
    name, status = next(iter(expected.items()))
    changed = expected | {name: "FAILED" if status == "PASSED" else "PASSED"}
    assert list(judge(TITLE + lines, make_row(changed)).differences) == [name]
