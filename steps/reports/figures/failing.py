"""What a failed unit says of itself that others may say too: names of its failing tests, and the line of an error."""

from __future__ import annotations

import re
from collections.abc import Iterable

from swe_argo.steps.reports.stored_run import StoredUnit
from swe_argo.steps.reports.text.visible import cut_line, make_visible

TESTS_NAMED = 20
WIDTH = 160


def first_failing(unit: StoredUnit) -> list[str]:
    """The first of its listed tests that do not pass, visible and cut."""
    names = unit.grade.failing_tests[:TESTS_NAMED] if unit.grade else []
    return [cut_line(make_visible(name), WIDTH) for name in names]


def error_of(unit: StoredUnit) -> str:
    """Why it has no verdict, else the line of an error that its log ends with; visible, cut, empty where none is known.

    Logs are read for a report alone: while a run works, an error is why a unit failed.
    """
    error = unit.failure.reason if unit.failure else error_line(unit.log_tail.lines)
    return cut_line(make_visible(error), WIDTH)


def error_line(lines: Iterable[str]) -> str:
    """The last line that names an error, without where it was; empty where none does."""
    for line in reversed([*lines]):
        if match := _ERROR.search(line):
            return match.group(1).strip()
    return ""


_ERROR = re.compile(
    r"(?:^|^E\s+|^FAILED .* - |^ERROR .* - )((?:[A-Za-z_][\w.]*)?(?:Error|Exception|Killed|Timeout)\b.*)"
)
