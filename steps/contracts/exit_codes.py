"""Final failures of a step program, which are not retried: an exit code, and a line that starts with its name.

Any other end of a pod is an infrastructure failure and is retried, whatever its exit code: a node that is drained while
Argo's own program starts (exit code 2), a kubelet, an eviction, a broken image.
"""

from __future__ import annotations

FINAL = (64, 70)
"""Exit codes of a wrong request and of a bug in swe-argo."""


def format_exit_line(program: str, reason: str) -> str:
    """Return a program's last line, which Argo shows after the exit code."""
    return f"{program}: {reason}"


def final_exit_pattern(program: str) -> str:
    """Return the regular expression (Go and Python) of a pod's message in Argo if the program failed finally.

    The program's name is part of it, because argoexec, which starts the program, also exits with 64.
    """
    codes = "|".join(str(code) for code in FINAL)
    return f"^main: [A-Za-z]* ?[(]exit code ({codes})[)]: {format_exit_line(program, '')}"
