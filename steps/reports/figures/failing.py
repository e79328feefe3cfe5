"""Failing tests and error line of a failed unit, which it may share with other units."""

from __future__ import annotations

import re
from collections.abc import Iterable

from swe_argo.steps.reports.stored_run import StoredUnit
from swe_argo.steps.reports.text.visible import cut_line, make_visible

MAX_TESTS = 20
WIDTH = 160


def first_failing_tests(unit: StoredUnit) -> list[str]:
    """Return the first listed tests that do not pass, sanitized and cut."""
    names = unit.grade.failing_tests[:MAX_TESTS] if unit.grade else []
    return [cut_line(make_visible(name), WIDTH) for name in names]


def error_of(unit: StoredUnit) -> str:
    """Return why the unit has no verdict, else the last error in its log, sanitized and cut; empty if unknown.

    Logs are read only for a report: while a run is in progress, only failures have an error.
    """
    error = unit.failure.reason if unit.failure else error_line(unit.log_tail.lines)
    return cut_line(make_visible(error), WIDTH)


def error_line(lines: Iterable[str]) -> str:
    """Return the last error message in the lines; empty if there is none."""
    for line in reversed([*lines]):
        if match := _ERROR.search(line):
            return match.group(1).strip()
    return ""


_ERROR = re.compile(
    r"(?:^|^E\s+|^FAILED .* - |^ERROR .* - )((?:[A-Za-z_][\w.]*)?(?:Error|Exception|Killed|Timeout)\b.*)"
)
