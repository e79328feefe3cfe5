"""SWE-Gym's verdict: SWE-bench's rule from before markers, over the whole log.

Source: SWE-Gym/SWE-Bench-Package, swegym/harness/grading.py (``get_logs_eval``, ``get_eval_report``). A skipped listed
test is in neither list, so it does not prevent a success.
"""

from __future__ import annotations

import re
from typing import cast

from swe_argo.steps.contracts.verdict import Finding
from swe_argo.steps.families.columns import SourceRow
from swe_argo.steps.families.family_verdict import FamilyVerdict
from swe_argo.steps.families.issue_columns import listed_tests
from swe_argo.steps.families.listed_tests import FAILING, LISTS, find_contradictions, find_differences, sort_tests
from swe_argo.steps.families.swegym.rows import list_test_files
from swe_argo.steps.families.swegym.specs import PARSER, spec_of
from swe_argo.steps.grading import swebench_harness
from swe_argo.steps.grading.saved_logs import normalise_line_ends

_FAILURES = (
    ">>>>> Patch Apply Failed",
    ">>>>> Reset Failed",
    ">>>>> Tests Errored",
    ">>>>> Tests Timed Out",
    "Failed to reset task environment",
)
_PREDICTION_APPLIED = ">>>>> Applied Patch (pred)"
_APPLIED = re.compile(r"^Applied patch .+ cleanly\.\r?$", re.MULTILINE)


def judge(log: str, row: SourceRow, *, timed_out: bool = False) -> FamilyVerdict:
    """Return the verdict on the script's output. Raises ConfigError if a row has no lists or an unknown repository."""
    spec_of(row)
    log, halves = normalise_line_ends(log), listed_tests(row)
    tests = [*halves[0], *halves[1]]
    if refusal := "the tests timed out" if timed_out else _why_unreadable(log):
        return FamilyVerdict(False, {}, find_differences(tests, {}), unreadable=refusal)
    statuses = parse_statuses(log.rpartition(_PREDICTION_APPLIED)[2])
    lists = {name: sort_tests(half, statuses) for name, half in zip(LISTS, halves, strict=True)}
    failures = [line for line in log.split("\n") if line.startswith(tuple(FAILING))]
    return FamilyVerdict(
        resolved=not any(outcome.failure for outcome in lists.values()),
        statuses=statuses,
        differences=find_differences(tests, statuses),
        lists=lists,
        findings=[
            *_find_unapplied(log, row),
            *find_contradictions(tests, statuses, list(parse_statuses("\n".join(failures)).items())),
        ],
    )


def parse_statuses(text: str) -> dict[str, str]:
    """Return test -> status, by swebench's parser of pytest's summary."""
    parse = swebench_harness.import_harness("log_parsers").PARSER_REGISTRY[PARSER]
    return cast(dict[str, str], parse(text, None))


def _why_unreadable(log: str) -> str:
    """Return the reason why a log has no results by SWE-bench's rule; empty if it has."""
    if words := next((words for words in _FAILURES if words in log), ""):
        return f"the log contains {words.removeprefix('>>>>> ')!r}"
    return "" if "applied patch" in log.lower() else "no test patch was applied"


def _find_unapplied(log: str, row: SourceRow) -> list[Finding]:
    """Return a finding if git did not apply all test files; the rule's words may also come from a patch in the log."""
    files = list_test_files(row)
    applied = len(_APPLIED.findall(log))
    if applied >= len(files):
        return []
    detail = f"git applied {applied} of {len(files)} files of the test patch"
    return [Finding(code="test_patch_not_applied", detail=detail)]
