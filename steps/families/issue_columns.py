"""Columns that several families share, with SWE-bench's names: issue, fix and hidden tests.

Every function raises ConfigError for an invalid row.
"""

from __future__ import annotations

from swe_argo.steps.families.columns import SourceRow, bad_column, read_id, read_names, read_text
from swe_argo.steps.families.listed_tests import LISTS


def problem_statement(row: SourceRow) -> str:
    """Return the issue text for an agent."""
    return read_text(row, "problem_statement", read_id(row))


def hints_text(row: SourceRow) -> str:
    """Return the issue's discussion, for agents with hints; may be empty."""
    return "" if row.get("hints_text") is None else read_text(row, "hints_text", read_id(row))


def gold_patch(row: SourceRow) -> str:
    """Return the fix as a diff against the base commit."""
    return _patch(row, "patch")


def hidden_patch(row: SourceRow) -> str:
    """Return the hidden tests as a diff against the base commit."""
    return _patch(row, "test_patch")


def listed_tests(row: SourceRow) -> list[list[str]]:
    """Return FAIL_TO_PASS and PASS_TO_PASS: tests that fail without the fix, and tests that pass either way."""
    lists = [read_names(row, column, read_id(row)) for column in LISTS]
    if not any(lists):
        raise bad_column(read_id(row), " and ".join(LISTS), "list no tests, so any log would count as resolved")
    return lists


def _patch(row: SourceRow, column: str) -> str:
    """Return a column that is a git diff."""
    text = read_text(row, column, read_id(row))
    if "diff --git " not in text:
        raise bad_column(read_id(row), column, "is not a git diff")
    return text
