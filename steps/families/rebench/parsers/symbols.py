"""Parsers of JavaScript runners that mark lines with symbols, such as Mocha, as in SWE-rebench."""

from __future__ import annotations

import re
from typing import Final

from swe_argo.steps.families.rebench.parsers.lines import FAILED, PASSED, SKIPPED, Results, parse_lines, record, rule

_TIME = re.compile(r"\s*(?:\(\s*)?\d+(?:\.\d+)?\s*(?:ms|s)\s*(?:\))?\s*$", re.IGNORECASE)


def _without_time(name: str) -> str:
    return _TIME.sub("", name).strip()


_SKIPPED = rule(r"-\s+(.*?)$", SKIPPED)
_PASSED = rule(r"✔\s+(.*?)$", PASSED, tentative=True)
parse_mocha: Final = parse_lines(_SKIPPED, rule(r"\d+\)\s+(.*?)$", FAILED), _PASSED, name=_without_time)
parse_mocha_colons: Final = parse_lines(
    _SKIPPED,
    rule(r"\d+\)\s+(.*?):$", FAILED),
    rule(r"\[W\]\s*\d+\)\s+(.*?)$", FAILED),
    _PASSED,
    name=_without_time,
)
"""Parser of Mocha that recognises failures by the colon after them in the final list."""

_BY_SYMBOL = {
    **dict.fromkeys("✔✓", PASSED),
    **dict.fromkeys("✘✖\u00d7", FAILED),
    **dict.fromkeys("○◌◦⚪", SKIPPED),
}
_SKIP_WORDS = ("(skipped)", "[skip]", "[skipped]", "[pending]", "[todo]")


def parse_symbols(log: str) -> Results:
    """Parse names after any runner's symbol, or with a word for skipped tests."""
    results: Results = {}
    for raw in log.splitlines():
        line = raw.strip()
        if status := _BY_SYMBOL.get(line[:1]):
            record(results, _without_time(_untagged(line[1:])), status, tentative=status == PASSED)
        elif any(word in line.lower() for word in _SKIP_WORDS):
            for word in _SKIP_WORDS:
                line = line.replace(word, "")
            record(results, _without_time(line), SKIPPED)
    return results


def _untagged(text: str) -> str:
    """Remove ``[project]:`` from the start."""
    text = text.strip()
    if text.startswith("[") and "]:" in text:
        text = text.partition("]:")[2].strip()
    return text[1:].strip() if text.startswith(":") else text


def parse_npx(log: str) -> Results:
    """Parse Mocha without skipped tests; the last line for a test counts."""
    results: Results = {}
    for raw in log.splitlines():
        line = raw.rstrip()
        if match := re.match(r"\s*✔\s+(.+?)(?:\s+\(\d+(?:ms)?\))?$", line):
            results[match[1].strip()] = PASSED
        elif match := re.match(r"\s*\d+\)\s+(.+)$", line):
            results[re.sub(r"\s+\([^)]+\)$", "", match[1].strip())] = FAILED
    return results
