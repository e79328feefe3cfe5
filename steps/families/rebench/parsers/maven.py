"""Parsers of Maven's logs: classes by counts, failures by methods, builds and modules by results."""

from __future__ import annotations

import re

from swe_argo.steps.families.rebench.parsers.junit import parse_test_cases
from swe_argo.steps.families.rebench.parsers.lines import ERROR, FAILED, PASSED, SKIPPED, Results, record

_COUNTS = re.compile(r"Tests run:\s*(\d+),\s*Failures:\s*(\d+),\s*Errors:\s*(\d+),\s*Skipped:\s*(\d+)")
_LEADING_COUNTS = re.compile(r"Tests run:\s+(\d+),\s+Failures:\s+(\d+),\s+Errors:\s+(\d+),\s+Skipped:\s+(\d+)")
_RUNNING = re.compile(r"(?:\[INFO\]\s+)?Running\s+([A-Za-z0-9_$.]+)$")
_FAILURE = re.compile(r"\[ERROR\]\s+([A-Za-z0-9_$.]+)\.([A-Za-z0-9_$.]+?)(?::(\d+))?\b")
_MODULE = re.compile(r"\[INFO\]\s+(.+?)\s+\.\.+\s+(SUCCESS|FAILURE|SKIPPED)(?:\s|\[|$)")
_MODULE_STATUS = {"SUCCESS": PASSED, "FAILURE": FAILED, "SKIPPED": SKIPPED}
_COMMAND = re.compile(r".*-Dtest=(\S+)")
_BUILD = re.compile(r".*BUILD (SUCCESS|FAILURE)$")
_NO_COMMAND = "---NO TEST NAME FOUND YET---"


def parse_surefire(log: str) -> Results:
    """Parse classes by the counts after them, and failed methods.

    Also reads JUnit elements and builds; in a log without any of these, all classes that ran have passed.
    """
    results: Results = {}
    classes: list[str] = []
    running: str | None = None
    for raw in log.splitlines():
        line = raw.strip()
        if match := _RUNNING.match(line):
            running = match[1]
            classes.append(running)
        elif match := _FAILURE.match(line):
            is_error = "Exception" in line and "AssertionError" not in line
            results[f"{match[1]}.{match[2]}"] = ERROR if is_error else FAILED
            results.setdefault(match[1], FAILED)
        elif counts := _COUNTS.search(line):
            # Some versions name the class at the end of the line.
            name = line.rpartition(" in ")[2].strip().rstrip(".:;") if " in " in line else running
            # The status that a failed method gave to its class stays.
            record(results, name or "", _by_counts(counts), tentative=True)
            running = None
    for name, status in parse_test_cases(log).items():
        results.setdefault(name, status)
    for name, status in parse_builds(log).items():
        results.setdefault(name, status)
    return results or dict.fromkeys(classes, PASSED)


def parse_classes(log: str) -> Results:
    """Parse classes by the counts that follow them."""
    results: Results = {}
    running: str | None = None
    for raw in log.splitlines():
        line = raw.strip()
        if match := re.match(r"Running\s+(.+)$", line):
            running = match[1]
        elif (counts := _LEADING_COUNTS.match(line)) and running:
            results[running] = _by_counts(counts)
            running = None
    return results


def parse_modules(log: str) -> Results:
    """Parse modules by the reactor's summary, and the first counts of the log as ``__suite__``."""
    results: Results = {}
    for raw in log.splitlines():
        line = raw.strip()
        if match := _MODULE.match(line):
            results[match[1]] = _MODULE_STATUS[match[2]]
        elif counts := _COUNTS.search(line):
            tests, failures, errors, skipped = map(int, counts.groups())
            status = FAILED if failures else ERROR if errors else SKIPPED if skipped == tests else PASSED
            results.setdefault("__suite__", status)
    return results


def parse_builds(log: str) -> Results:
    """Parse the names in ``-Dtest=`` by the result of the following build."""
    results: Results = {}
    name = _NO_COMMAND
    for raw in log.split("\n"):
        line = raw.strip()
        if match := _COMMAND.match(line):
            name = match[1]
        if match := _BUILD.match(line):
            results[name] = PASSED if match[1] == "SUCCESS" else FAILED
    return results


def _by_counts(counts: re.Match[str]) -> str:
    """Return the status for a match of ``Tests run: …, Failures: …, Errors: …, Skipped: …``."""
    _, failures, errors, skipped = map(int, counts.groups())
    return FAILED if failures or errors else SKIPPED if skipped else PASSED
