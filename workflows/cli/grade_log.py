"""``swe-argo grade-log``: reports of saved logs on standard output, one line about each on standard error."""

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
    "no verdict: no line says where the tests' output begins and ends, so this is a log of another harness (as of 2024)"
)


def grade_one(row: dict[str, Any], log: Path, patch: Path | None, *, integrity: bool) -> None:
    """Print report.json as the harness writes it; with ``integrity`` an object that holds it. Raises ConfigError."""
    read = saved_logs.read_log(row, log, patch)
    grade = read.examine() if integrity else None
    text = read.graded.data.decode() if grade is None else json.dumps(_object(log, grade), indent=4)
    sys.stdout.write(text + "\n")
    if integrity or not read.marked:
        _tell(log, read, grade)


def grade_folder(rows: Mapping[str, dict[str, Any]], folder: Path, *, integrity: bool) -> None:
    """Print an object a line, in the order of the paths, and the path of each. Raises ConfigError."""
    for log, read in saved_logs.read_corpus(rows, folder):
        grade = read.examine() if integrity else None
        sys.stdout.write(json.dumps(read.graded.report if grade is None else _object(log, grade)) + "\n")
        _tell(log, read, grade)


def _object(log: Path, grade: BoundedReport) -> dict[str, Any]:
    integrity, evidence = (part.model_dump(mode="json") for part in (grade.integrity, grade.evidence))
    return {"log": str(log), "report": grade.graded.report, "integrity": integrity, "evidence": evidence}


def _tell(log: Path, read: SavedLog, grade: BoundedReport | None) -> None:
    ((name, inner),) = read.graded.report.items()
    word = "resolved" if inner["resolved"] else "unresolved" if read.marked else NO_MARKERS
    line = f"{log}: {name}: {word}"
    if grade is not None:
        findings = "; ".join(f"{finding.code}: {finding.detail}" for finding in grade.integrity.findings)
        line += f", {grade.integrity.verdict}{f' ({findings})' if findings else ''}"
    sys.stderr.write(f"{line}\n")
