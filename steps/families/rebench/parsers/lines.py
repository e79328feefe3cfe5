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
    """A rule: a line that starts with ``pattern`` gives ``status`` to the test in the first group."""

    pattern: re.Pattern[str]
    status: str
    tentative: bool = False
    """Whether any other line about the test takes precedence."""


def rule(pattern: str, status: str, *, tentative: bool = False, flags: int = 0) -> LineRule:
    """Return a rule with a compiled pattern."""
    return LineRule(re.compile(pattern, flags), status, tentative)


def split_at_newlines(log: str) -> list[str]:
    """Split a log at newlines only."""
    return log.split("\n")


def parse_lines(
    *rules: LineRule,
    split: Callable[[str], list[str]] = str.splitlines,
    clean: Callable[[str], str] = str.strip,
    name: Callable[[str], str] = str,
) -> Callable[[str], Results]:
    """Return a parser that applies the first matching rule to each line; a test's last line counts.

    ``clean`` is applied to every line, ``name`` to every test name; empty names are ignored.
    """

    def parse(log: str) -> Results:
        results: Results = {}
        for raw in split(log):
            if not (line := clean(raw)):
                continue
            for line_rule in rules:
                if match := line_rule.pattern.match(line):
                    record(results, name(match[1]), line_rule.status, tentative=line_rule.tentative)
                    break
        return results

    return parse


def record(results: Results, test: str, status: str, *, tentative: bool = False) -> None:
    """Record a test's status, unless the name is empty or a tentative status has a predecessor."""
    if test and not (tentative and test in results):
        results[test] = status
