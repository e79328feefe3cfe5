"""``swe-argo grade-log``: reports of saved logs on standard output, one line per log on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swe_argo.steps.grading import saved_logs
from swe_argo.steps.grading.bounded import BoundedReport
from swe_argo.steps.grading.saved_logs import SavedLog

NO_MARKERS = (
    "no verdict: the log does not mark start and end of the tests' output; it is from another harness (e.g. of 2024)"
)


def grade_one(row: dict[str, Any], log: Path, patch: Path | None, *, integrity: bool) -> None:
    """Print report.json as the harness writes it; with ``integrity`` as part of an object.

    Raises ConfigError if the log cannot be read or graded.
    """
    saved_log = saved_logs.read_log(row, log, patch)
    grade = saved_log.examine() if integrity else None
    text = saved_log.graded.data.decode() if grade is None else json.dumps(_object(log, grade), indent=4)
    sys.stdout.write(text + "\n")
    if integrity or not saved_log.marked:
        _print_result(log, saved_log, grade)


def grade_folder(rows: Mapping[str, dict[str, Any]], folder: Path, *, integrity: bool) -> None:
    """Print one JSON object per log and its path, in the order of the paths.

    Raises ConfigError if there are no logs, one has no row, or one cannot be graded.
    """
    for log, saved_log in saved_logs.read_corpus(rows, folder):
        grade = saved_log.examine() if integrity else None
        sys.stdout.write(json.dumps(saved_log.graded.report if grade is None else _object(log, grade)) + "\n")
        _print_result(log, saved_log, grade)


def _object(log: Path, grade: BoundedReport) -> dict[str, Any]:
    integrity, evidence = (part.model_dump(mode="json") for part in (grade.integrity, grade.evidence))
    return {"log": str(log), "report": grade.graded.report, "integrity": integrity, "evidence": evidence}


def _print_result(log: Path, saved_log: SavedLog, grade: BoundedReport | None) -> None:
    """Print the result of a log as one line on stderr: the JSON is on stdout."""
    ((name, report),) = saved_log.graded.report.items()
    result = "resolved" if report["resolved"] else "unresolved" if saved_log.marked else NO_MARKERS
    line = f"{log}: {name}: {result}"
    if grade is not None:
        findings = "; ".join(f"{finding.code}: {finding.detail}" for finding in grade.integrity.findings)
        line += f", {grade.integrity.verdict}{f' ({findings})' if findings else ''}"
    sys.stderr.write(f"{line}\n")
