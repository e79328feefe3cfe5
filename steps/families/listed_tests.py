"""Sorting of listed tests by their statuses, as in swebench (harness/grading.py, 2.x to 4.1).

SWE-smith and SWE-Gym use this rule: PASSED and XFAIL pass; FAILED, ERROR and tests missing from the log fail; SKIPPED
is neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from swe_argo.steps.contracts.verdict import Finding
from swe_argo.steps.families.family_verdict import ListOutcome, StatusDifference

LISTS: Final = ("FAIL_TO_PASS", "PASS_TO_PASS")
PASSING: Final = frozenset({"PASSED", "XFAIL"})
FAILING: Final = frozenset({"FAILED", "ERROR"})
STATUSES: Final = (*sorted(FAILING), *sorted(PASSING), "SKIPPED")


def sort_tests(tests: Sequence[str], statuses: Mapping[str, str]) -> ListOutcome:
    """Return the passed and failed tests of one list."""
    return ListOutcome(
        success=[test for test in tests if statuses.get(test) in PASSING],
        failure=[test for test in tests if test not in statuses or statuses[test] in FAILING],
    )


def find_differences(tests: Sequence[str], statuses: Mapping[str, str]) -> dict[str, StatusDifference]:
    """Return the tests that did not pass."""
    return {test: StatusDifference(statuses.get(test), "PASSED") for test in tests if statuses.get(test) not in PASSING}


def find_contradictions(
    tests: Sequence[str], statuses: Mapping[str, str], results: Sequence[tuple[str, str]]
) -> list[Finding]:
    """Return findings on listed tests that were skipped, or reported both as passed and as failed.

    ``results`` are all (test, status) pairs of the log in order; the last pair of a test counts.
    """
    findings = []
    skipped = [test for test in tests if statuses.get(test) == "SKIPPED"]
    if skipped:
        findings.append(Finding(code="tests_skipped", detail=f"{len(skipped)} listed tests, first {skipped[0]}"))
    failed = {test for test, status in results if status in FAILING}
    both = [test for test in tests if test in failed and statuses.get(test) in PASSING]
    if both:
        findings.append(Finding(code="passed_and_failed", detail=f"{len(both)} tests, first {both[0]}"))
    return findings
