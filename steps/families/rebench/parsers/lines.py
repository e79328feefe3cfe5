"""Parsers built from a table of line patterns and statuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

Results = dict[str, str]
"""Test -> PASSED, FAILED, ERROR or SKIPPED."""
PASSED, FAILED, ERROR, SKIPPED = "PASSED", "FAILED", "ERROR", "SKIPPED"


@dataclass(frozen=True)
class LineRule:
    """A line that matches ``pattern`` from its start gives ``status`` to the test in the first group."""

    pattern: re.Pattern[str]
    status: str
    tentative: bool = False
    """Whether any other line on the test, before or after, takes precedence."""


def rule(pattern: str, status: str, *, tentative: bool = False, flags: int = 0) -> LineRule:
    """Return a rule from a pattern as text."""
    return LineRule(re.compile(pattern, flags), status, tentative)


def split_at_newlines(log: str) -> list[str]:
    """Split a log into lines that end with a newline and nothing else."""
    return log.split("\n")


def parse_lines(
    *rules: LineRule,
    split: Callable[[str], list[str]] = str.splitlines,
    clean: Callable[[str], str] = str.strip,
    name: Callable[[str], str] = str,
) -> Callable[[str], Results]:
    """Return a parser that applies the first matching rule to each line; the last line of a test counts.

    ``clean`` is applied to every line first, ``name`` to every name; an empty name is no test.
    """

    def parse(log: str) -> Results:
        results: Results = {}
        for raw in split(log):
            if not (line := clean(raw)):
                continue
            for each in rules:
                if match := each.pattern.match(line):
                    record(results, name(match[1]), each.status, tentative=each.tentative)
                    break
        return results

    return parse


def record(results: Results, test: str, status: str, *, tentative: bool = False) -> None:
    """Record the status of a test from a line, if the line names one."""
    if test and not (tentative and test in results):
        results[test] = status
