"""Columns of an R2E-Gym row (R2E-Gym/R2E-Gym-Subset, -Lite, -V1).

A row is a fixing commit; the image contains its parent. A row has only the hash of the fix, no base commit. The hash,
the image's tag (the same hash) and the column ``prompt`` (the gold patch) are part of the answer.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import PurePosixPath
from typing import Final

from swe_argo.steps.families.columns import RowColumns, SourceRow, bad_column, read_json, read_names, read_text

COLUMNS: Final = RowColumns(("repo_name", "docker_image", "commit_hash", "expected_output_json"))
"""The columns of R2E-Gym's rows. Its copies of SWE-bench rows lack the expected map."""
REPOS = frozenset(
    {
        *("aiohttp", "coveragepy", "datalad", "numpy", "orange3", "pandas"),
        *("mini", "pillow", "pyramid", "scrapy", "sympy", "tornado"),
    }
)
"""The repositories for which R2E-Gym has a parser (repo_analysis/execution_log_parser.py), and ``mini``."""
STATUSES = frozenset({"PASSED", "FAILED", "ERROR"})
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ISSUE = re.compile(r"\[ISSUE\](.*)\[/ISSUE\]", re.DOTALL)
_IMAGE = re.compile(r"[a-z0-9][a-z0-9._/:-]*:[A-Za-z0-9_][A-Za-z0-9_.-]*")
_TEST_FOLDERS = frozenset({"test", "tests", "Test", "Tests"})


def instance_id(row: SourceRow) -> str:
    """Return ``r2e__<repo>-<16 hex digits>``, from a hash of repository and fix that does not reveal the fix.

    Raises ConfigError, like every function here.
    """
    digest = hashlib.sha256(f"{repo(row)}:{fix_commit(row)}".encode()).hexdigest()
    return f"r2e__{repo(row)}-{digest[:16]}"


def repo(row: SourceRow) -> str:
    """Return R2E-Gym's name of the repository (``aiohttp``)."""
    name = read_text(row, "repo_name", "a row of R2E-Gym")
    if name not in REPOS:
        raise bad_column("a row of R2E-Gym", "repo_name", f"{name!r} is not one of {', '.join(sorted(REPOS))}")
    return name


def fix_commit(row: SourceRow) -> str:
    """Return the commit of the fix, a part of the answer."""
    commit = read_text(row, "commit_hash", f"a row of {repo(row)}")
    if not _COMMIT.fullmatch(commit):
        raise bad_column(f"a row of {repo(row)}", "commit_hash", f"{commit!r} is not 40 hex digits")
    return commit


def image(row: SourceRow) -> str:
    """Return the image: ``namanjain12/<repo>_final:<fix>``. Its tag is the fix, so an agent may not see it."""
    name = read_text(row, "docker_image", instance_id(row))
    if not _IMAGE.fullmatch(name):
        raise bad_column(instance_id(row), "docker_image", f"{name!r} is not an image with a tag")
    return name


def problem_statement(row: SourceRow) -> str:
    """Return the issue text for an agent: between ``[ISSUE]`` and ``[/ISSUE]``, else the whole column.

    Source: R2E-Gym, agenthub/runtime/docker.py, ``get_task_instruction``.
    """
    text = read_text(row, "problem_statement", instance_id(row))
    inside = _ISSUE.search(text)
    return (inside[1] if inside else text).strip()


def expected_statuses(row: SourceRow) -> dict[str, str]:
    """Return test -> required status, including FAILED and ERROR. Rejects an empty map, which any log would match."""
    name = instance_id(row)
    statuses = read_json(row, "expected_output_json", name)
    if not isinstance(statuses, dict) or not all(status in STATUSES for status in map(str, statuses.values())):
        raise bad_column(name, "expected_output_json", f"is not a map of tests to {', '.join(sorted(STATUSES))}")
    if not statuses:
        raise bad_column(name, "expected_output_json", "lists no tests, so any log would count as resolved")
    return statuses


def list_test_files(row: SourceRow) -> list[str]:
    """Return the test files of the fix as repository paths; the image has them as ``/r2e_tests/test_<n>.py``."""
    return [path for path in read_names(row, "modified_files", instance_id(row)) if is_test_path(path)]


def is_test_path(path: str) -> bool:
    """Return whether R2E-Gym counts a file as a test (commit_models/diff_classes.py, ``FileDiff.is_test_file``)."""
    parts = PurePosixPath(path).parts
    has_test_name = bool(parts) and (parts[-1].startswith("test_") or path.startswith("test_"))
    return has_test_name or path.endswith("_test.py") or not _TEST_FOLDERS.isdisjoint(parts)
