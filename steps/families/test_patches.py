"""Files in a test patch, as in SWE-bench's harness of 2024 (harness/utils.py, test_spec.py)."""

from __future__ import annotations

import re
from collections.abc import Collection

_NO_TESTS = (".json", ".png", "csv", ".txt", ".md", ".jpg", ".jpeg", ".pkl", ".yml", ".yaml", ".toml")


def files_of(patch: str) -> list[str]:
    """Return the files of a patch, by their new names."""
    return re.findall(r"^diff --git a/.* b/(.*)$", patch, re.MULTILINE)


def files_before(patch: str) -> list[str]:
    """Return the files of a patch that exist without it, to reset them before it is applied."""
    return re.findall(r"^--- a/([^\t\n]*)", patch, re.MULTILINE)


def files_to_run(patch: str) -> list[str]:
    """Return the files of a patch that are arguments of the test command (``get_test_directives``)."""
    return [file for file in files_of(patch) if not file.endswith(_NO_TESTS)]


def drop_files(patch: bytes, files: Collection[str]) -> bytes:
    """Return a git diff without the sections of some files."""
    sections = re.split(rb"^(?=diff --git )", patch, flags=re.MULTILINE)
    names = [f" b/{file}".encode() for file in files]
    return b"".join(section for section in sections if not section.split(b"\n", 1)[0].endswith(tuple(names)))
