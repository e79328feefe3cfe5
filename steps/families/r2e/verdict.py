"""R2E-Gym's reward: the map of statuses in the log equals the expected one.

Sources: R2E-Gym, repo_analysis/execution_log_parser.py (``parse_log_pytest``, ``decolor_dict_keys``) and
agenthub/runtime/docker.py (``run_tests``, ``_calculate_reward_r2e``; the later form, in which a key that is not
expected is a mismatch and the empty key is not compared). The exit code is not looked at.
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
    """The verdict on what ``run_tests.sh`` printed. A run that ``timed_out`` counts as one that printed nothing.

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
    same = all(expected.get(key) == status for key, status in reported.items() if key)
    resolved = len(reported) == len(expected) and same
    unreadable = "pytest printed no summary" if len(parts) == 1 else ""
    return FamilyVerdict(
        resolved=resolved,
        statuses=reported,
        differences=differences,
        unreadable="the tests did not end in time" if timed_out else unreadable,
        findings=_findings(len(parts) - 1, resolved, differences),
    )


def comparable_statuses(row: SourceRow) -> dict[str, str]:
    """The expected map as it is compared."""
    return _comparable(expected_statuses(row))


def read_name(node_id: str) -> str:
    """The name of a passed test in the map."""
    name = node_id.partition("::")[2] if "/" in node_id.partition("::")[0] else node_id
    return name.replace("::", ".").split(_REASON)[0]


def _parse_summary(summary: str) -> dict[str, str]:
    """Test -> PASSED, FAILED or ERROR, of the text behind the first title of a summary, up to the second one.

    A line belongs to the first of the three words that it holds anywhere. The name is what follows the first ``::``,
    further ones are ``.``; a line without ``::`` has the empty name.
    """
    statuses: dict[str, str] = {}
    for line in summary.strip().split("\n"):
        status = next((word for word in ("PASSED", "FAILED", "ERROR") if word in line), None)
        if status is not None:
            name = ".".join(line.split("::")[1:])
            statuses[name if status == "PASSED" else name.split(_REASON)[0]] = status
    return statuses


def _comparable(statuses: dict[str, str]) -> dict[str, str]:
    """The map as it is compared: keys cut at the first `` - ``; of keys that are equal then, the last in order."""
    plain = {_KEY_COLOUR.sub("", key): status for key, status in statuses.items()}
    return {key.split(_REASON)[0]: plain[key] for key in sorted(plain)}


def _findings(summaries: int, resolved: bool, differences: dict[str, StatusDifference]) -> list[Finding]:
    findings = []
    if summaries > 1:
        detail = f"{summaries} summaries in the log, the first one counts"
        findings.append(Finding(code="summary_repeated", detail=detail))
    missing = [key for key, difference in differences.items() if difference.reported is None]
    if resolved and missing:
        detail = f"{len(missing)} expected tests are not in the log, {missing[0]} first"
        findings.append(Finding(code="tests_missing", detail=detail))
    return findings
