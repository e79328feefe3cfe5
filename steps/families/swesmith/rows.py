"""Columns of a SWE-smith row (SWE-bench/SWE-smith, SWE-bench/SWE-smith-py).

The column ``patch`` is the bug. The image's repository has it on a branch named like the instance, whose top commit
removes the tests that the bug fails.
"""

from __future__ import annotations

import re
from typing import Final

from swe_argo.steps.families.columns import IMAGE, RowColumns, SourceRow, bad_column, read_id, read_text
from swe_argo.steps.families.issue_columns import listed_tests
from swe_argo.steps.families.listed_tests import LISTS
from swe_argo.steps.families.swesmith.reverse import reverse_patch

COLUMNS: Final = RowColumns(
    ("instance_id", "repo", "image_name", "patch", *LISTS), without=("test_patch", "version", "eval_script")
)
_REPO = re.compile(r"(?:swesmith/)?([A-Za-z0-9.-]+?)__([A-Za-z0-9._-]+)\.([0-9a-f]{8})")
_OWN_IMAGE = re.compile(r"(?:(?:docker\.io/)?(?:jyangballin|swebench)/)?swesmith\.x86_64\.[^/:]+(?::latest)?")


def instance_id(row: SourceRow) -> str:
    """Return ``<owner>__<repo>.<commit>.<method>__<hash>``. Raises ConfigError, like every function here."""
    return read_id(row)


def branch(row: SourceRow) -> str:
    """Return the branch in the image's repository; the published repositories do not have ``base_commit``."""
    return read_id(row)


def repo(row: SourceRow) -> str:
    """Return ``<owner>/<repo>`` of the mirror ``swesmith/<owner>__<repo>.<commit>``."""
    owner, name, _ = _mirror(row)
    return f"{owner}/{name}"


def profile_key(row: SourceRow) -> str:
    """Return ``<owner>__<repo>.<commit>``, the key of SWE-smith's commands and parsers."""
    owner, name, commit = _mirror(row)
    return f"{owner}__{name}.{commit}"


def base_commit(row: SourceRow) -> str:
    """Return the column, or ""; it is never checked out (see ``branch``)."""
    return read_text(row, "base_commit", instance_id(row)) if row.get("base_commit") else ""


def image(row: SourceRow) -> str:
    """Return ``swebench/swesmith.x86_64.<owner>_1776_<repo>.<commit>`` in lower case.

    Older rows have the user ``jyangballin``, or no user and ``__`` for ``_1776_`` (swesmith 0.0.9, profiles/base.py,
    ``image_name`` ignores the column). A name in another registry is only lowercased.
    """
    name = read_text(row, "image_name", instance_id(row))
    if _OWN_IMAGE.fullmatch(name):
        owner, repo_name, commit = _mirror(row)
        return f"swebench/swesmith.x86_64.{owner}_1776_{repo_name}.{commit}".lower()
    place, at, digest = name.partition("@")
    lower = place.lower() + at + digest
    if not IMAGE.fullmatch(lower):
        raise bad_column(instance_id(row), "image_name", f"{name!r} is not an image name")
    return lower


def problem_statement(row: SourceRow) -> str:
    """Return the issue text for an agent; empty in some rows, or without the column."""
    return "" if row.get("problem_statement") is None else read_text(row, "problem_statement", instance_id(row))


def bug_patch(row: SourceRow) -> str:
    """Return the bug as a unified diff against the repository without it, a part of the answer."""
    text = read_text(row, "patch", instance_id(row))
    if not text.strip():
        raise bad_column(instance_id(row), "patch", "is empty: there is no bug")
    return text


def gold_patch(row: SourceRow) -> str:
    """Return the unified diff that removes the bug."""
    try:
        return reverse_patch(bug_patch(row))
    except ValueError as error:
        raise bad_column(instance_id(row), "patch", str(error)) from None


def list_test_files(row: SourceRow) -> list[str]:
    """Return the files of the listed tests, those of FAIL_TO_PASS first.

    Only pytest ids have a file. One profile (mido) runs with another root, where files are ``../dev/...``.
    """
    halves = [sorted({test.partition("::")[0] for test in tests if "::" in test}) for tests in listed_tests(row)]
    return list(dict.fromkeys(file.removeprefix("../dev/") for half in halves for file in half))


def _mirror(row: SourceRow) -> tuple[str, str, str]:
    """Return owner, repository and commit from the mirror's name. Raises ConfigError if it has another form."""
    text = read_text(row, "repo", instance_id(row))
    parts = _REPO.fullmatch(text)
    if parts is None:
        raise bad_column(instance_id(row), "repo", f"{text!r} is not swesmith/<owner>__<repo>.<commit>")
    return parts[1], parts[2], parts[3]
