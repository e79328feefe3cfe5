"""R2E-Gym's reward: 1 if the log's map of statuses equals the expected map.

Sources: R2E-Gym, repo_analysis/execution_log_parser.py (``parse_log_pytest``, ``decolor_dict_keys``) and
agenthub/runtime/docker.py (``run_tests``, ``_calculate_reward_r2e``; the later form, in which an unexpected key is a
mismatch and the empty key is not compared). The exit code is ignored.
"""

from __future__ import annotations

import re

from swe_argo.steps.contracts.verdict import Finding
from swe_argo.steps.families.columns import SourceRow
from swe_argo.steps.families.family_verdict import FamilyVerdict, StatusDifference
from swe_argo.steps.families.r2e.rows import expected_statuses

_NOISE = re.compile(r"\x1b\[[0-9;]*m|\r")
_KEY_COLOUR = re.compile(r"\x1b\[\d+m")
_SUMMARY = "short test summary info"
_REASON = " - "


def judge(log: str, row: SourceRow, *, timed_out: bool = False) -> FamilyVerdict:
    """Return the verdict on the output of ``run_tests.sh``. A run that ``timed_out`` has no results.

    Raises ConfigError for a row without an expected map.
    """
    expected = comparable_statuses(row)
    parts = _NOISE.sub("", log).split(_SUMMARY)
    reported = {} if timed_out or len(parts) == 1 else _comparable(_parse_summary(parts[1]))
    keys = dict.fromkeys([*expected, *(key for key in reported if key)])
    differences = {
        key: StatusDifference(reported.get(key), expected.get(key))
        for key in keys
        if reported.get(key) != expected.get(key)
    }
    matches = all(expected.get(key) == status for key, status in reported.items() if key)
    # The empty key counts as a test, although its status is not compared: R2E-Gym does the same.
    resolved = len(reported) == len(expected) and matches
    unreadable = "pytest printed no summary" if len(parts) == 1 else ""
    return FamilyVerdict(
        resolved=resolved,
        statuses=reported,
        differences=differences,
        unreadable="the tests timed out" if timed_out else unreadable,
        findings=_findings(len(parts) - 1, resolved, differences),
    )


def comparable_statuses(row: SourceRow) -> dict[str, str]:
    """Return the expected map, prepared for comparison."""
    return _comparable(expected_statuses(row))


def read_name(node_id: str) -> str:
    """Return a passed test's name in the map."""
    name = node_id.partition("::")[2] if "/" in node_id.partition("::")[0] else node_id
    return name.replace("::", ".").split(_REASON)[0]


def _parse_summary(summary: str) -> dict[str, str]:
    """Parse test -> PASSED, FAILED or ERROR from the text between the first and the second summary title.

    A line's status is the first of the three words in this order that it contains. The name is the text after the
    first ``::``, with ``.`` for further ones, and empty without ``::``.
    """
    statuses: dict[str, str] = {}
    for line in summary.strip().split("\n"):
        status = next((word for word in ("PASSED", "FAILED", "ERROR") if word in line), None)
        if status is not None:
            name = ".".join(line.split("::")[1:])
            statuses[name if status == "PASSED" else name.split(_REASON)[0]] = status
    return statuses


def _comparable(statuses: dict[str, str]) -> dict[str, str]:
    """Return the map with keys cut at the first `` - ``; of equal keys, the last in order counts."""
    plain = {_KEY_COLOUR.sub("", key): status for key, status in statuses.items()}
    return {key.split(_REASON)[0]: plain[key] for key in sorted(plain)}


def _findings(summaries: int, resolved: bool, differences: dict[str, StatusDifference]) -> list[Finding]:
    """Return findings on repeated summaries, and on expected tests that a resolved log does not report."""
    findings = []
    if summaries > 1:
        detail = f"{summaries} summaries in the log; the first one counts"
        findings.append(Finding(code="summary_repeated", detail=detail))
    missing = [key for key, difference in differences.items() if difference.reported is None]
    if resolved and missing:
        detail = f"{len(missing)} expected tests are not in the log, first {missing[0]}"
        findings.append(Finding(code="tests_missing", detail=detail))
    return findings
