"""Parsers that rows of SWE-rebench name, after SWE-rebench/SWE-rebench-V2, log_parsers.py.

Parsers that swebench also has are swebench's. Upstream has further parsers; rows that name them are rejected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, Final

from swe_argo.steps.families import rebench_junit as junit
from swe_argo.steps.families.listed_tests import STATUSES
from swe_argo.steps.families.rebench_junit import ERROR, FAILED, PASSED, SKIPPED, Results
from swe_argo.steps.grading import official

Parser = Callable[[str], Results]


def _parse_lines(
    rules: Mapping[str, str],
    *,
    tentative: Collection[str] = (),
    split: Callable[[str], list[str]] = str.splitlines,
    clean: Callable[[str], str] = str.strip,
    name: Callable[[str], str] = str,
) -> Parser:
    """Return a parser that applies the first matching rule to each line; a test's last line counts.

    Args:
        rules: Pattern at the start of a line -> status of the test in its first group.
        tentative: Statuses over which any other line about the test takes precedence.
        split: Splits a log into lines.
        clean: Applied to every line.
        name: Applied to every test name; empty names are ignored.
    """
    patterns = [(re.compile(pattern), status) for pattern, status in rules.items()]

    def parse(log: str) -> Results:
        results: Results = {}
        for line in filter(None, map(clean, split(log))):
            for pattern, status in patterns:
                if match := pattern.match(line):
                    _record(results, name(match[1]), status, tentative=status in tentative)
                    break
        return results

    return parse


def _record(results: Results, test: str, status: str, *, tentative: bool) -> None:
    """Record a test's status, unless the name is empty or a tentative status has a predecessor."""
    if test and not (tentative and test in results):
        results[test] = status


def _split_at_newlines(log: str) -> list[str]:
    return log.split("\n")


_PYTEST: Final = (FAILED, PASSED, SKIPPED, ERROR)
_ANY = "|".join(_PYTEST)
_CONTROLS = dict.fromkeys(range(1, 32))
_WORKER_LINE = re.compile(rf"\[gw\d+\]\s+\[[^\]]*\]\s+({_ANY})\s+(.*)$")
_TIMED = re.compile(rf"([^\s].*?)\s+({_ANY})\s+\[[^\]]*\]\s+in\s+\d+(?:\.\d+)?s$")
_OPTION = re.compile(r"(.*?)\[(.*)\]")
_STATUS_FIRST = re.compile(rf"({_ANY})\s+(.*)$")


def _split_words(line: str) -> list[str]:
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


def _parse_pytest(log: str) -> Results:
    """Parse ``-rA``; ids end at the first blank."""
    lines = (_split_words(line) for line in log.split("\n") if line.startswith(_PYTEST))
    return {words[1]: words[0] for words in lines if len(words) > 1}


def _parse_pytest_options(log: str) -> Results:
    return {_without_folders(name): status for name, status in _parse_pytest(log).items()}


def _parse_pytest_v2(log: str, statuses: tuple[str, ...] = _PYTEST) -> Results:
    """Parse ``-rA`` and the statuses at line ends of older pytest's ``-v``; ids end at the first blank."""
    results: Results = {}
    for line in map(_clean, log.split("\n")):
        if line.startswith(statuses):
            if len(words := _split_words(line)) > 1:
                results[words[1]] = words[0]
        elif line.endswith(statuses) and len(words := line.split()) > 1:
            results[words[0]] = words[1]
    return results


def _parse_pytest_nebo(log: str) -> Results:
    """Parse ``-v`` with workers, ``-v`` with times, and ``-rA``; ids may contain blanks."""
    results: Results = {}
    for raw in log.splitlines():
        line = _clean(raw).strip()
        if match := _WORKER_LINE.match(line):
            results[match[2].partition(" in ")[0].strip()] = match[1]
        elif match := _TIMED.match(line):
            results[match[1].strip()] = match[2]
        elif match := _STATUS_FIRST.match(line):
            results[match[2].partition(" in ")[0].strip()] = match[1]
    return results


_TIME = re.compile(r"\s*(?:\(\s*)?\d+(?:\.\d+)?\s*(?:ms|s)\s*(?:\))?\s*$", re.IGNORECASE)


def _without_time(name: str) -> str:
    return _TIME.sub("", name).strip()


_BY_SYMBOL = {**dict.fromkeys("✔✓", PASSED), **dict.fromkeys("✘✖\u00d7", FAILED), **dict.fromkeys("○◌◦⚪", SKIPPED)}
_SKIP_WORDS = ("(skipped)", "[skip]", "[skipped]", "[pending]", "[todo]")


def _parse_symbols(log: str) -> Results:
    """Parse names after any JavaScript runner's symbol, or with a word for skipped tests."""
    results: Results = {}
    for raw in log.splitlines():
        line = raw.strip()
        if status := _BY_SYMBOL.get(line[:1]):
            _record(results, _without_time(_without_project(line[1:])), status, tentative=status == PASSED)
        elif any(word in line.lower() for word in _SKIP_WORDS):
            for word in _SKIP_WORDS:
                line = line.replace(word, "")
            _record(results, _without_time(line), SKIPPED, tentative=False)
    return results


def _without_project(text: str) -> str:
    """Remove ``[project]:`` from the start."""
    text = text.strip()
    if text.startswith("[") and "]:" in text:
        text = text.partition("]:")[2].strip()
    return text[1:].strip() if text.startswith(":") else text


_ALCOTEST = re.compile(r"\s*\[([A-Z]+)\]\s+(.*?)\s+(\d+)\s+(.+)$")
_ALCOTEST_STATUS = {
    **dict.fromkeys(("OK", "PASS"), PASSED),
    **dict.fromkeys(("FAIL", "FAILED"), FAILED),
    **dict.fromkeys(("SKIP", "SKIPPED", "TODO"), SKIPPED),
}


def _parse_alcotest(log: str) -> Results:
    """Parse ``[OK]  suite  3  name``; a test is all three."""
    results: Results = {}
    for line in log.splitlines():
        if match := _ALCOTEST.match(line.rstrip()):
            status = _ALCOTEST_STATUS.get(match[1], ERROR)
            name = " ".join(filter(None, map(str.strip, match.group(2, 3, 4))))
            _record(results, name, status, tentative=status == PASSED)
    return results


_SUITE = re.compile(r"[A-Z][A-Za-z0-9_]*$")
_SUITE_LINE = re.compile(r"\s*(test[^A-Z\n]+?)\s+(PASS|PASSED|FAIL|FAILURE|ERROR|SKIP|SKIPPED)\b(?:\s*\([0-9.]+s\))?$")
_SUITE_STATUS = {"PASS": PASSED, "FAIL": FAILED, "FAILURE": FAILED, "SKIP": SKIPPED}
_RANK = {FAILED: 1, ERROR: 2}


def _parse_minitest_suites(log: str) -> Results:
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


def _parse_leiningen(log: str) -> Results:
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
                _record(results, name, PASSED, tentative=True)
            namespace = names[-1] if names else ""
        elif namespace and line.startswith(("FAIL in", "ERROR in")):
            results[namespace] = FAILED if line.startswith("FAIL") else ERROR
    return results


_DART = {"success": PASSED, "failure": FAILED, "error": ERROR}


def _parse_dart_events(log: str) -> Results:
    """Parse ``dart test --reporter json``, matching the start and end events of each test by number."""
    results: Results = {}
    names: dict[Any, str] = {}
    for event in _read_events(log):
        match event:
            case {"type": "testStart", "test": {"name": str(name), "id": int(number)}}:
                if name and not name.startswith("loading "):
                    names[number] = name
            case {"type": "testDone", "testID": int(number)} if not event.get("hidden", False):
                ended = _DART.get(str(event.get("result"))) or (SKIPPED if event.get("skipped", False) else None)
                if ended and number in names:
                    results[names[number]] = ended
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


def _parse_by_swebench(name: str, log: str) -> Results:
    return dict(official.import_harness("log_parsers").PARSER_REGISTRY[name](log, None))


_PHPUNIT_TIME = re.compile(r"\s*\[\s*\d+(?:\.\d+)?\s*(?:ms|s)\s*\]\s*$", re.IGNORECASE)


def _parse_phpunit(log: str) -> Results:
    """Parse PHPUnit's ``--testdox``. Its times are removed here; ``judge`` removes one from listed names, too."""
    results = _parse_by_swebench("parse_log_phpunit", log)
    return {_PHPUNIT_TIME.sub("", name).strip(): status for name, status in results.items()}


OF_SWEBENCH: Final = {
    f"parse_log_{name}": partial(_parse_by_swebench, f"parse_log_{name}")
    for name in (
        *("gotest", "redis", "jq", "doctest", "micropython_test", "googletest", "minitest"),
        *("cucumber", "ruby_unit", "rspec_transformed_json", "cargo", "ant", "chart_js", "marked", "p5js"),
        *("jest", "jest_json", "vitest", "karma", "tap"),
    )
}
"""Parsers that swebench has under the same name, with equal results once times are removed from test names."""
_SECONDS = r"(?:\s\([\d.]+\s*(?:ms|s)\))?"
_CONSOLE = r"([^>].+?)\s+{}(?:\s+\(\d+(?:\.\d+)?s\))?$"
_MINITEST = r"(.+?#.+?)\s+=\s+[\d.]+\s+s\s+=\s+"
_CTEST = r"(?i)\d+/\d+\s+Test\s+#\d+:\s+(.+?)\s+\.+\s+"
_PLENARY = r"\s*\|\|\s*(.+?)\s*$"
_XCTEST = r"Test Case '([^']+)'\s+{}\s+\([0-9.]+\s+seconds\)$"
_SCALATEST = r"\[info\]\s+-\s+(.*?)\s+"
V2_PARSERS: Final[Mapping[str, Parser]] = OF_SWEBENCH | {
    "parse_log_phpunit": _parse_phpunit,
    "parse_log_pytest": _parse_pytest,
    "parse_log_pytest_options": _parse_pytest_options,
    "parse_log_pytest_v2": _parse_pytest_v2,
    "parse_log_pytest_nebo": _parse_pytest_nebo,
    "parse_combined_test_reports": junit.parse_reports,
    "parse_log_gradlew_v1": junit.parse_gradle,
    **dict.fromkeys(("parse_log_sbt", "parse_log_junit"), junit.parse_test_cases),
    **dict.fromkeys(("parse_logs_r_junit", "parse_log_r_junit"), junit.parse_r),
    **dict.fromkeys(("parse_logs_kotlin_junit", "parse_log_kotlin_junit"), junit.parse_classes),
    **dict.fromkeys(("parse_java_mvn", "parse_log_java_mvn"), junit.parse_surefire),
    **dict.fromkeys(("parse_java_mvn_v2", "parse_log_java_mvn_v2"), junit.parse_modules),
    "parse_log_maven": junit.parse_builds,
    # Jest without --verbose: one file per line.
    "parse_log_react_pdf": _parse_lines(
        {rf"PASS\s(.*?){_SECONDS}$": PASSED, rf"FAIL\s(.*?){_SECONDS}$": FAILED},
        split=_split_at_newlines,
        clean=str,
        name=str.rstrip,
    ),
    # Gradle with a test logger: ``Class > method PASSED``.
    "parse_log_gradle_custom": _parse_lines(
        {_CONSOLE.format("PASSED"): PASSED, _CONSOLE.format("FAILED"): FAILED}, split=_split_at_newlines
    ),
    # ExUnit: ``mix test --trace``.
    "parse_log_elixir": _parse_lines(
        {
            r"\*\s+test\s+(.*?)\s+\(skipped\)\s+\[L#\d+\]$": SKIPPED,
            r"\d+\)\s+test\s+(.*?)\s+\([^)]+\)$": FAILED,
            r"\*\s+test\s+(.*?)\s+\([0-9]+(?:\.[0-9]+)?ms\)\s+\[L#\d+\]$": PASSED,
            r"\*\s+test\s+(.*?)\s+\[L#\d+\]$": PASSED,
        },
        tentative=(PASSED,),
    ),
    "parse_log_ruby_v1": _parse_minitest_suites,
    # minitest --verbose: ``Class#test = 0.01 s = .``.
    "parse_log_ruby_v2": _parse_lines(
        {rf"{_MINITEST}\.$": PASSED, rf"{_MINITEST}[FE]$": FAILED, rf"{_MINITEST}S$": SKIPPED}
    ),
    "parse_log_cpp_v2": _parse_lines(
        {r"Test\s+(.*?)\s+passed$": PASSED, r"Test\s+(.*?)\s+failed$": FAILED, r"Test\s+(.*?)\s+skipped$": SKIPPED},
        tentative=(PASSED,),
    ),
    # ctest: ``1/2 Test #1: name ... Passed``.
    "parse_log_cpp_v4": _parse_lines(
        {rf"{_CTEST}Passed\b": PASSED, rf"{_CTEST}(?:Failed|Timeout)\b": FAILED, rf"{_CTEST}Skipped\b": SKIPPED}
    ),
    # plenary.nvim: ``Success || name``.
    **dict.fromkeys(
        ("parse_lue_nvim", "parse_lua_nvim", "parse_log_lua_nvim"),
        _parse_lines(
            {
                rf"(?:Fail|Failed){_PLENARY}": FAILED,
                rf"(?i)(?:Skip|Skipped){_PLENARY}": SKIPPED,
                rf"Success{_PLENARY}": PASSED,
            },
            tentative=(SKIPPED, PASSED),
            clean=lambda line: re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip(),
        ),
    ),
    "parse_log_swift": _parse_lines({_XCTEST.format("passed"): PASSED, _XCTEST.format("failed"): FAILED}),
    # ``dotnet test`` with its console logger.
    "parse_log_csharp": _parse_lines(
        {
            r"\[xUnit\.net\s+[\d:\.]+\]\s+(.+?)\s+\[FAIL\]$": FAILED,
            r"\s+Failed\s+(.+?)\s+\[.+?\]$": FAILED,
            r"\s+Skipped\s+(.+?)(?:\s+\[.+?\])?$": SKIPPED,
            r"\s+Passed\s+(.+?)\s+\[.+?\]$": PASSED,
        },
        tentative=(PASSED,),
        clean=str.rstrip,
    ),
    "parse_log_scala": _parse_lines(
        {
            rf"{_SCALATEST}\*\*\*\s+FAILED\s+\*\*\*\s+\([^)]+\)$": FAILED,
            rf"{_SCALATEST}!!!\s+CANCELED\s+!!!\s+\([^)]+\)$": SKIPPED,
            rf"{_SCALATEST}!!!\s+IGNORED\s+!!!": SKIPPED,
            rf"{_SCALATEST}\([^)]+\)$": PASSED,
        },
        tentative=(PASSED,),
    ),
    "parse_log_ocaml": _parse_alcotest,
    "parse_log_lein": _parse_leiningen,
    "parse_log_dart": _parse_dart_events,
    # Mocha, with a colon after failures in the final list.
    "parse_log_js": _parse_lines(
        {r"-\s+(.*?)$": SKIPPED, r"\d+\)\s+(.*?):$": FAILED, r"\[W\]\s*\d+\)\s+(.*?)$": FAILED, r"✔\s+(.*?)$": PASSED},
        tentative=(PASSED,),
        name=_without_time,
    ),
    "parse_log_js_2": _parse_lines(
        {r"-\s+(.*?)$": SKIPPED, r"\d+\)\s+(.*?)$": FAILED, r"✔\s+(.*?)$": PASSED},
        tentative=(PASSED,),
        name=_without_time,
    ),
    "parse_log_js_4": _parse_symbols,
    # Mocha without skipped tests.
    "parse_log_npx": _parse_lines(
        {r"\s*✔\s+(.+?)(?:\s+\(\d+(?:ms)?\))?$": PASSED, r"\s*\d+\)\s+(.+?)(?:\s+\([^)]+\))?$": FAILED},
        clean=str.rstrip,
        name=str.strip,
    ),
}
V1_PARSERS: Final[Mapping[str, Parser]] = {
    "parse_log_pytest": partial(_parse_by_swebench, "parse_log_pytest"),
    "parse_log_pytest_options": partial(_parse_by_swebench, "parse_log_pytest_options"),
    "parse_log_pytest_v2": partial(_parse_pytest_v2, statuses=STATUSES),
}
"""Parsers of V1's fork of swebench under these names, which also read XFAIL."""
