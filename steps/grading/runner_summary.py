"""The summary that a test runner prints at the end of a run: pytest, unittest and sympy."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from swe_argo.steps.grading.official import Parser

_PYTEST_COUNT = re.compile(r"(\d+) (passed|failed|errors?|xpassed|xfailed|skipped)\b")
_UNITTEST_RAN = re.compile(r"Ran (\d+) tests? in ")
_UNITTEST_BAD = re.compile(r"(?:failures|errors)=(\d+)")
_SYMPY_COUNT = re.compile(r"(\d+) (passed|failed|exceptions?|expected to fail but passed)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class RunnerSummary:
    """A runner's own count of a run.

    Attributes:
        line: The closing line as printed, without colours.
        passed_at_most: The passed tests; with unittest, which does not count these, all tests that ran.
        failed: The failures and errors.
    """

    line: str
    passed_at_most: int
    failed: int


def find_summary_reader(parser: Parser) -> Callable[[list[str]], RunnerSummary | None] | None:
    """Return the reader of closing lines for an official parser; None if its runner is unknown."""
    return _READERS.get(getattr(parser, "__name__", ""))


def _pytest(lines: list[str]) -> RunnerSummary | None:
    """Read pytest's closing line, such as ``== 1 failed, 2 passed in 0.12s ==``."""
    # From the end: the last count is that of the outermost run (pytest's own tests print inner ones).
    for line in reversed(lines):
        if " in " in line and (" passed" in line or " failed" in line or " error" in line or " skipped" in line):
            plain = _COLOUR.sub("", line)
            counts = {word: int(number) for number, word in _PYTEST_COUNT.findall(plain.partition(" in ")[0])}
            if counts:
                passed = counts.get("passed", 0) + counts.get("xpassed", 0)
                failed = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
                return RunnerSummary(plain.strip("= "), passed, failed)
    return None


def _unittest(lines: list[str]) -> RunnerSummary | None:
    """Read unittest's ``Ran 3 tests in 0.1s`` and, within five lines, ``OK`` or ``FAILED (failures=1)``."""
    for number in range(len(lines) - 1, -1, -1):
        if lines[number].startswith("Ran ") and (ran := _UNITTEST_RAN.match(lines[number])):
            verdict = next((line for line in lines[number + 1 : number + 6] if line.strip()), "")
            failed = sum(int(count) for count in _UNITTEST_BAD.findall(verdict)) if "FAILED" in verdict else 0
            return RunnerSummary(f"{lines[number]}: {verdict}", int(ran[1]), failed)
    return None


def _sympy(lines: list[str]) -> RunnerSummary | None:
    """Read the closing line of sympy's runner, ``tests finished: 2 passed, 1 failed, in 0.12 seconds``."""
    for line in reversed(lines):
        if "tests finished: " in line:
            counts = {word: int(number) for number, word in _SYMPY_COUNT.findall(line)}
            failed = counts.get("failed", 0) + counts.get("exceptions", 0) + counts.get("exception", 0)
            return RunnerSummary(line.strip("= "), counts.get("passed", 0), failed)
    return None


_READERS = {
    "parse_log_pytest": _pytest,
    "parse_log_pytest_options": _pytest,
    "parse_log_pytest_v2": _pytest,
    "parse_log_matplotlib": _pytest,
    "parse_log_seaborn": _pytest,
    "parse_log_django": _unittest,
    "parse_log_sympy": _sympy,
}
