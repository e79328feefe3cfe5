"""SWE-smith's verdict: every listed test passes, by the text between the script's markers.

Source: swesmith 0.0.9, harness/grading.py (``read_test_output``, ``get_eval_report``) with swebench 4.1. A skipped
listed test does not pass here. In swesmith it is in neither list, so a patch that skips every test would be a fix.
"""

from __future__ import annotations

from swe_argo.steps.contracts.verdict import Finding
from swe_argo.steps.families.columns import SourceRow
from swe_argo.steps.families.family_verdict import FamilyVerdict
from swe_argo.steps.families.issue_columns import listed_tests
from swe_argo.steps.families.listed_tests import LISTS, find_contradictions, find_differences, sort_tests
from swe_argo.steps.families.swesmith.profiles import profile_of
from swe_argo.steps.grading.saved_logs import normalise_line_ends

START, END = ">>>>> Start Test Output", ">>>>> End Test Output"
_TRACED_START, _TRACED_END = (f"+ : '{words}'" for words in (START, END))
_FAILURES = {
    ">>>>> Patch Apply Failed": "the log reports that the patch does not apply",
    ">>>>> Tests Timed Out": "the tests timed out",
}


def judge(log: str, row: SourceRow, *, timed_out: bool = False) -> FamilyVerdict:
    """Return the verdict on the script's output. Raises ConfigError if a row has no lists or an unknown profile."""
    log, halves = normalise_line_ends(log), listed_tests(row)
    tests = [*halves[0], *halves[1]]
    profile = profile_of(row)
    region, refusal = marked_region(log)
    if timed_out:
        refusal = _FAILURES[">>>>> Tests Timed Out"]
    if refusal:
        return FamilyVerdict(
            False, {}, find_differences(tests, {}), unreadable=refusal, findings=_find_repeated_markers(log)
        )
    results = profile.parse(region)
    statuses = dict(results)
    differences = find_differences(tests, statuses)
    return FamilyVerdict(
        resolved=not differences,
        statuses=statuses,
        differences=differences,
        lists={name: sort_tests(half, statuses) for name, half in zip(LISTS, halves, strict=True)},
        findings=[*_find_repeated_markers(log), *find_contradictions(tests, statuses, results)],
    )


def marked_region(log: str) -> tuple[str, str]:
    """Return the text between the first traces of the two markers, and the reason if there is none, else ""."""
    for words, reason in _FAILURES.items():
        if words in log:
            return "", reason
    if START not in log or END not in log:
        return "", "the log lacks the script's markers"
    start, end = log.find(_TRACED_START), log.find(_TRACED_END)
    if start < 0 or end < start:
        return "", "the script's markers are in the wrong order"
    return log[start + len(_TRACED_START) : end], ""


def _find_repeated_markers(log: str) -> list[Finding]:
    """Return findings on repeated markers; the first END ends the region."""
    counts = {"start_markers": log.count(_TRACED_START), "end_markers": log.count(_TRACED_END)}
    return [
        Finding(code=code, detail=f"{count} in the log; the script prints one")
        for code, count in counts.items()
        if count > 1
    ]
