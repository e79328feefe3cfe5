"""Parsers for test runners that print a line per test."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from swe_argo.steps.families.rebench.parsers.lines import (
    ERROR,
    FAILED,
    PASSED,
    SKIPPED,
    Results,
    parse_lines,
    record,
    rule,
    split_at_newlines,
)

_SECONDS = r"(?:\s\([\d.]+\s*(?:ms|s)\))?"
parse_jest_files: Final = parse_lines(
    rule(rf"PASS\s(.*?){_SECONDS}$", PASSED),
    rule(rf"FAIL\s(.*?){_SECONDS}$", FAILED),
    split=split_at_newlines,
    clean=str,
    name=str.rstrip,
)
"""Parser of Jest without ``--verbose``: one file per line."""
_CONSOLE = r"([^>].+?)\s+{}(?:\s+\(\d+(?:\.\d+)?s\))?$"
parse_gradle_console: Final = parse_lines(
    rule(_CONSOLE.format("PASSED"), PASSED), rule(_CONSOLE.format("FAILED"), FAILED), split=split_at_newlines
)
"""Parser of Gradle with a test logger: ``Class > method PASSED``."""
parse_exunit: Final = parse_lines(
    rule(r"\*\s+test\s+(.*?)\s+\(skipped\)\s+\[L#\d+\]$", SKIPPED),
    rule(r"\d+\)\s+test\s+(.*?)\s+\([^)]+\)$", FAILED),
    rule(r"\*\s+test\s+(.*?)\s+\([0-9]+(?:\.[0-9]+)?ms\)\s+\[L#\d+\]$", PASSED, tentative=True),
    rule(r"\*\s+test\s+(.*?)\s+\[L#\d+\]$", PASSED, tentative=True),
)
"""Parser of ExUnit (``mix test --trace``)."""
_MINITEST = r"(.+?#.+?)\s+=\s+[\d.]+\s+s\s+=\s+"
parse_minitest_lines: Final = parse_lines(
    rule(rf"{_MINITEST}\.$", PASSED), rule(rf"{_MINITEST}[FE]$", FAILED), rule(rf"{_MINITEST}S$", SKIPPED)
)
"""Parser of minitest ``--verbose``: ``Class#test = 0.01 s = .``."""
parse_test_lines: Final = parse_lines(
    rule(r"Test\s+(.*?)\s+passed$", PASSED, tentative=True),
    rule(r"Test\s+(.*?)\s+failed$", FAILED),
    rule(r"Test\s+(.*?)\s+skipped$", SKIPPED),
)
_CTEST = r"\d+/\d+\s+Test\s+#\d+:\s+(.+?)\s+\.+\s+"
parse_ctest: Final = parse_lines(
    *(
        rule(rf"{_CTEST}(?:{words})\b", status, flags=re.IGNORECASE)
        for words, status in (("Passed", PASSED), ("Failed|Timeout", FAILED), ("Skipped", SKIPPED))
    )
)
"""Parser of ctest: ``1/2 Test #1: name ... Passed``."""
_PLENARY = r"\s*\|\|\s*(.+?)\s*$"
parse_plenary: Final = parse_lines(
    rule(rf"(?:Fail|Failed){_PLENARY}", FAILED),
    rule(rf"(?:Skip|Skipped){_PLENARY}", SKIPPED, tentative=True, flags=re.IGNORECASE),
    rule(rf"Success{_PLENARY}", PASSED, tentative=True),
    clean=lambda line: re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip(),
)
"""Parser of plenary.nvim: ``Success || name``."""
_XCTEST = r"Test Case '([^']+)'\s+{}\s+\([0-9.]+\s+seconds\)$"
parse_xctest: Final = parse_lines(rule(_XCTEST.format("passed"), PASSED), rule(_XCTEST.format("failed"), FAILED))
parse_dotnet: Final = parse_lines(
    rule(r"\[xUnit\.net\s+[\d:\.]+\]\s+(.+?)\s+\[FAIL\]$", FAILED),
    rule(r"\s+Failed\s+(.+?)\s+\[.+?\]$", FAILED),
    rule(r"\s+Skipped\s+(.+?)(?:\s+\[.+?\])?$", SKIPPED),
    rule(r"\s+Passed\s+(.+?)\s+\[.+?\]$", PASSED, tentative=True),
    clean=str.rstrip,
)
"""Parser of ``dotnet test`` with its console logger."""
_SCALATEST = r"\[info\]\s+-\s+(.*?)\s+"
parse_scalatest: Final = parse_lines(
    rule(rf"{_SCALATEST}\*\*\*\s+FAILED\s+\*\*\*\s+\([^)]+\)$", FAILED),
    rule(rf"{_SCALATEST}!!!\s+CANCELED\s+!!!\s+\([^)]+\)$", SKIPPED),
    rule(rf"{_SCALATEST}!!!\s+IGNORED\s+!!!", SKIPPED),
    rule(rf"{_SCALATEST}\([^)]+\)$", PASSED, tentative=True),
)

_ALCOTEST = re.compile(r"\s*\[([A-Z]+)\]\s+(.*?)\s+(\d+)\s+(.+)$")
_ALCOTEST_STATUS = {
    **dict.fromkeys(("OK", "PASS"), PASSED),
    **dict.fromkeys(("FAIL", "FAILED"), FAILED),
    **dict.fromkeys(("SKIP", "SKIPPED", "TODO"), SKIPPED),
}


def parse_alcotest(log: str) -> Results:
    """Parse ``[OK]  suite  3  name``; a test is all three."""
    results: Results = {}
    for line in log.splitlines():
        if match := _ALCOTEST.match(line.rstrip()):
            status = _ALCOTEST_STATUS.get(match[1], ERROR)
            name = " ".join(part for part in (match[i].strip() for i in (2, 3, 4)) if part)
            record(results, name, status, tentative=status == PASSED)
    return results


_SUITE = re.compile(r"[A-Z][A-Za-z0-9_]*$")
_SUITE_LINE = re.compile(r"\s*(test[^A-Z\n]+?)\s+(PASS|PASSED|FAIL|FAILURE|ERROR|SKIP|SKIPPED)\b(?:\s*\([0-9.]+s\))?$")
_SUITE_STATUS = {"PASS": PASSED, "FAIL": FAILED, "FAILURE": FAILED, "SKIP": SKIPPED}
_RANK = {FAILED: 1, ERROR: 2}


def parse_minitest_suites(log: str) -> Results:
    """Parse minitest-reporters: a line with the suite's name, then its tests; a test's worst status counts."""
    results: Results = {}
    suite = ""
    for raw in log.splitlines():
        line = raw.rstrip()
        if _SUITE.match(line):
            suite = line
        elif match := _SUITE_LINE.match(line):
            name = f"{suite}::{match[1].strip()}" if suite else match[1].strip()
            status = _SUITE_STATUS.get(match[2], match[2])
            if name not in results or _RANK.get(status, 0) > _RANK.get(results[name], 0):
                results[name] = status
    return results


def parse_leiningen(log: str) -> Results:
    """Parse ``lein test``; a namespace passes unless a failure follows its name."""
    results: Results = {}
    namespace = ""
    for raw in log.splitlines():
        line = raw.strip()
        if match := re.match(r"lein test (.+)$", line):
            words = match[1].split()
            only = words[:1] == [":only"]
            names = [" ".join(words[1:]).partition("/")[0].strip()] if only else words
            for name in names:
                record(results, name, PASSED, tentative=True)
            namespace = names[-1] if names else ""
        elif namespace and line.startswith(("FAIL in", "ERROR in")):
            results[namespace] = FAILED if line.startswith("FAIL") else ERROR
    return results


_DART = {"success": PASSED, "failure": FAILED, "error": ERROR}


def parse_dart_events(log: str) -> Results:
    """Parse ``dart test --reporter json``, matching the start and end events of each test by number."""
    results: Results = {}
    names: dict[Any, str] = {}
    for event in _read_events(log):
        kind, test = event.get("type"), event.get("test")
        if kind == "testStart" and isinstance(test, dict):
            name, number = test.get("name"), test.get("id")
            if isinstance(name, str) and isinstance(number, int) and name and not name.startswith("loading "):
                names[number] = name
        elif kind == "testDone" and not event.get("hidden", False) and isinstance(event.get("testID"), int):
            ended = _DART.get(str(event.get("result"))) or (SKIPPED if event.get("skipped", False) else None)
            if ended and event["testID"] in names:
                results[names[event["testID"]]] = ended
    return results


def _read_events(log: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a log: one or a list of them per line."""
    for raw in log.splitlines():
        line = raw.strip()
        if not line.startswith(("{", "[")):
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        yield from (item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict))
