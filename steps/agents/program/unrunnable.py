"""Diagnosis of an agent program that cannot start, from messages of the shell and the loader."""

from __future__ import annotations

import re

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit codes of a shell for a program that is missing, for another machine, or without its C library."""
_WORDS = (
    (r"exec format error|cannot execute binary file", "it is for another processor"),
    (r"version `(GLIBC|GLIBCXX|CXXABI)_\S+' not found", "the image's libraries are older than it needs"),
    (r"error while loading shared libraries|error loading shared library", "the image lacks a library that it needs"),
    (r"error relocating .*symbol not found", "the image has another C library than it needs"),
    (r"required file not found", "the image lacks the C library or the interpreter that it needs"),
    (r"command not found", "it is not there"),
    (r"no such file or directory|not found", "it is not there, or the image lacks the C library that it needs"),
    (
        r"permission denied",
        "it may not be executed; in pods, nodes may mount images so: chart value sandbox.agentFiles=copy",
    ),
)  # bash's execute_cmd.c; glibc's elf/dl-*.c; musl's ldso/dynlink.c


def explain_unrunnable(code: int, printed: str) -> str | None:
    """Return the reason why a program could not start, None if it seems to have run."""
    if code in (NOT_EXECUTABLE, NOT_FOUND):
        return next((why for words, why in _WORDS if re.search(words, printed, re.IGNORECASE)), "it cannot be executed")
    words, why = _WORDS[1]
    return why if code and re.search(words, printed, re.IGNORECASE) else None
