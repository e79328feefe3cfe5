"""Parsers that are a table: what a line looks like, and what it says of which test."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

Results = dict[str, str]
"""Test -> PASSED, FAILED, ERROR or SKIPPED."""
PASSED, FAILED, ERROR, SKIPPED = "PASSED", "FAILED", "ERROR", "SKIPPED"


@dataclass(frozen=True)
class LineRule:
    """A line that matches ``pattern`` from its start says ``status`` of the test in the first group."""

    pattern: re.Pattern[str]
    status: str
    tentative: bool = False
    """Whether what another line says of the test holds instead, before or after."""


def rule(pattern: str, status: str, *, tentative: bool = False, flags: int = 0) -> LineRule:
    """A rule of a pattern as text."""
    return LineRule(re.compile(pattern, flags), status, tentative)


def split_at_newlines(log: str) -> list[str]:
    """Lines that end with a newline and nothing else."""
    return log.split("\n")


def parse_lines(
    *rules: LineRule,
    split: Callable[[str], list[str]] = str.splitlines,
    clean: Callable[[str], str] = str.strip,
    name: Callable[[str], str] = str,
) -> Callable[[str], Results]:
    """A parser whose first rule that matches a line holds for it; of several lines for one test the last counts.

    ``clean`` is done to every line before, ``name`` to every name; what has no name then is no test.
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
    """Write down what a line says of a test, if it names one."""
    if test and not (tentative and test in results):
        results[test] = status
