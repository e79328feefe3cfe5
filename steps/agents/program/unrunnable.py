"""Diagnosis of an agent program that cannot start, from messages of the shell and the loader."""

from __future__ import annotations

import re

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit codes of a shell for a program that is missing, for another machine, or without its C library."""
_CAUSES = (
    (r"exec format error|cannot execute binary file", "the program is for another processor"),
    (r"version `(GLIBC|GLIBCXX|CXXABI)_\S+' not found", "the image's libraries are older than the program requires"),
    (
        r"error while loading shared libraries|error loading shared library",
        "the image lacks a library that the program requires",
    ),
    (r"error relocating .*symbol not found", "the image has another C library than the program requires"),
    (r"required file not found", "the image lacks the C library or the interpreter that the program requires"),
    (r"command not found", "the program does not exist"),
    (
        r"no such file or directory|not found",
        "the program does not exist, or the image lacks the C library that it requires",
    ),
    (
        r"permission denied",
        "the program may not be executed; if nodes mount images that way, set the chart value sandbox.agentFiles=copy",
    ),
)  # bash's execute_cmd.c; glibc's elf/dl-*.c; musl's ldso/dynlink.c


def explain_unrunnable(code: int, printed: str) -> str | None:
    """Return the reason why a program could not start, None if it seems to have run."""
    if code in (NOT_EXECUTABLE, NOT_FOUND):
        return next(
            (cause for pattern, cause in _CAUSES if re.search(pattern, printed, re.IGNORECASE)),
            "the program cannot be executed",
        )
    # After other exit codes only this cause is certain: the loader misses a library's version.
    pattern, cause = _CAUSES[1]
    return cause if code and re.search(pattern, printed, re.IGNORECASE) else None
