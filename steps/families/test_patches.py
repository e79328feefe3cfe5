"""Files in a patch of hidden tests, as SWE-bench's harness of 2024 reads it (harness/utils.py, test_spec.py)."""

from __future__ import annotations

import re
from collections.abc import Collection

_NO_TESTS = (".json", ".png", "csv", ".txt", ".md", ".jpg", ".jpeg", ".pkl", ".yml", ".yaml", ".toml")


def files_of(patch: str) -> list[str]:
    """Return the files of a patch, by their names after it."""
    return re.findall(r"^diff --git a/.* b/(.*)$", patch, re.MULTILINE)


def files_before(patch: str) -> list[str]:
    """Return the files of a patch that exist without it: they are reset before it is applied."""
    return re.findall(r"^--- a/([^\t\n]*)", patch, re.MULTILINE)


def files_to_run(patch: str) -> list[str]:
    """Return the files of a patch that follow a test command (``get_test_directives``)."""
    return [file for file in files_of(patch) if not file.endswith(_NO_TESTS)]


def drop_files(patch: bytes, files: Collection[str]) -> bytes:
    """Return a diff of git without the sections of some files."""
    sections = re.split(rb"^(?=diff --git )", patch, flags=re.MULTILINE)
    names = [f" b/{file}".encode() for file in files]
    return b"".join(each for each in sections if not each.split(b"\n", 1)[0].endswith(tuple(names)))
