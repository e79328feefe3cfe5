"""Parsers of pytest logs as in SWE-rebench V2: like swebench's of that time, for four statuses."""

from __future__ import annotations

import re
from typing import Final

from swe_argo.steps.families.rebench.parsers.lines import ERROR, FAILED, PASSED, SKIPPED, Results

_STATUSES: Final = (FAILED, PASSED, SKIPPED, ERROR)
_ANY = "|".join(_STATUSES)
_CONTROLS = dict.fromkeys(range(1, 32))
_WORKER_LINE = re.compile(r"\[gw\d+\]\s+\[[^\]]*\]\s+(\w+)\s+(.*)$")
_TIMED = re.compile(rf"([^\s].*?)\s+({_ANY})\s+\[[^\]]*\]\s+in\s+\d+(?:\.\d+)?s$")
_OPTION = re.compile(r"(.*?)\[(.*)\]")
_STATUS_FIRST = re.compile(rf"({_ANY})\s+(.*)$")


def _split(line: str) -> list[str]:
    """Return the words of a line; in a failure's, a blank stands for `` - `` before the message."""
    return (line.replace(" - ", " ") if line.startswith(FAILED) else line).split()


def _without_folders(name: str) -> str:
    """Return a test's name with an absolute path in its parameter cut to the last part."""
    match = _OPTION.search(name)
    if match is None:
        return name
    option = match[2]
    if option.startswith("/") and not option.startswith("//") and "*" not in option:
        option = "/" + option.rpartition("/")[2]
    return f"{match[1]}[{option}]"


def _clean(line: str) -> str:
    """Remove colours and control characters."""
    return re.sub(r"\[(\d+)m", "", line).translate(_CONTROLS)


def parse_pytest(log: str) -> Results:
    """Parse ``-rA``; ids end at the first blank."""
    results: Results = {}
    for line in log.split("\n"):
        if line.startswith(_STATUSES) and len(words := _split(line)) > 1:
            results[words[1]] = words[0]
    return results


def parse_pytest_options(log: str) -> Results:
    """Parse ``-rA``; paths in parameters are cut to their last part."""
    return {_without_folders(name): status for name, status in parse_pytest(log).items()}


def parse_pytest_v2(log: str, statuses: tuple[str, ...] = _STATUSES) -> Results:
    """Parse ``-rA`` and the statuses at line ends of older pytest's ``-v``; ids end at the first blank."""
    results: Results = {}
    for raw in log.split("\n"):
        line = _clean(raw)
        if line.startswith(statuses):
            words = _split(line)
            if len(words) > 1:
                results[words[1]] = words[0]
        elif line.endswith(statuses):
            words = line.split()
            if len(words) > 1:
                results[words[0]] = words[1]
    return results


def parse_pytest_nebo(log: str) -> Results:
    """Parse ``-v`` with workers, ``-v`` with times, and ``-rA``; ids may contain blanks."""
    results: Results = {}
    for raw in log.splitlines():
        line = _clean(raw).strip()
        if (match := _WORKER_LINE.match(line)) and match[1] in _STATUSES:
            results[match[2].partition(" in ")[0].strip()] = match[1]
        elif match := _TIMED.match(line):
            results[match[1].strip()] = match[2]
        elif match := _STATUS_FIRST.match(line):
            results[match[2].partition(" in ")[0].strip()] = match[1]
    return results
