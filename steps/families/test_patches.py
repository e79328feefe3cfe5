"""What a patch of hidden tests names, as SWE-bench's harness of 2024 reads it (harness/utils.py, test_spec.py)."""

from __future__ import annotations

import re

_NO_TESTS = (".json", ".png", "csv", ".txt", ".md", ".jpg", ".jpeg", ".pkl", ".yml", ".yaml", ".toml")


def files_of(patch: str) -> list[str]:
    """Its files, as they are called after it."""
    return re.findall(r"^diff --git a/.* b/(.*)$", patch, re.MULTILINE)


def files_before(patch: str) -> list[str]:
    """Those of its files that there are without it: what is reset before it is applied."""
    return re.findall(r"^--- a/([^\t\n]*)", patch, re.MULTILINE)


def files_to_run(patch: str) -> list[str]:
    """Those of its files that stand behind a test command (``get_test_directives``)."""
    return [file for file in files_of(patch) if not file.endswith(_NO_TESTS)]
