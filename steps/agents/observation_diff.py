"""Comparison of observations that ignores parts which vary from one run of a program to the next.

Ignored: durations, dates and times, epoch seconds and process ids on lines of their own, memory addresses, names of
temporary files, the real folder of a repository, and an agent's remaining steps.
"""

from __future__ import annotations

import re

from swe_argo.steps.contracts.data import WORKDIR

_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_UNIT = "(?:seconds?|secs?|minutes?|mins?|hours?|ms|us|µs|ns|s|m|h)"
_VOLATILE = tuple(
    (re.compile(pattern), placeholder)
    for pattern, placeholder in (
        (r"\nSteps Remaining: \d+\s*\Z", ""),
        (r"\n\nAll of your \d+ steps are used up\. Call \w+ now\.\s*\Z", ""),
        # Before the patterns for numbers, which UUIDs contain.
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
        (r"\b0x[0-9a-fA-F]{5,}\b", "<address>"),
        # Name of a command's output in Codex's shell.
        (r"(?m)^Chunk ID: [0-9a-f]+$", "<chunk>"),
        # Root of a sandbox that shares its host's file system (swe_argo.steps.host.folders).
        (r"(?:/[\w.+@~-]+)*/swe-argo-(?:\d+-){3}\w{8}\b", ""),
        (r"(?<=/tmp/)(?:tmp[\w.-]+|pytest-of-\w+/pytest-\d+|\.shell-[0-9a-f]+|pip-[\w-]+)", "<temporary>"),
        (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z| ?[+-]\d\d:?\d\d)?)?", "<time>"),
        (rf"\b(?:{_DAY},? )?{_MONTH} [ \d]\d (?: ?\d{{4}}|\d\d:\d\d(?::\d\d)?)(?: \w+ \d{{4}})?", "<time>"),
        (r"\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\b", "<time>"),
        (r"\b\d+m\d+(?:[.,]\d+)?s\b", "<duration>"),
        (rf"\b\d+[.,]\d+(?:e-?\d+)? ?{_UNIT}\b", "<duration>"),
        (r"\b\d+ ?(?:seconds?|secs?|ms|us|µs|ns)\b", "<duration>"),
        (r"(?m)^\[\d+\][ +-]*\d+$", "<job>"),
        # date +%s, plain or with milliseconds, microseconds or nanoseconds: seconds of 2001 to 2096.
        (r"(?m)^[ \t]*[1-3]\d{9}(?:[.,]\d+|\d{3}|\d{6}|\d{9})?[ \t\r]*$", "<time>"),
        # echo $!, pgrep: a number with fewer digits is more likely a count.
        (r"(?m)^[ \t]*[1-9]\d{2,6}[ \t\r]*$", "<pid>"),
        (r"\b([Pp][Ii][Dd]|[Pp]rocess)([ =:]+)\d+\b", r"\1\2<pid>"),
        (r"\b\d+ (?=(?:Killed|Terminated|Aborted|Hangup|Segmentation fault|Interrupt|Quit)\b)", "<pid> "),
        # Rules around a duration are as wide as the terminal.
        (r"={3,}|-{3,}", "<rule>"),
    )
)


_BLOBS = re.compile(r"^index [0-9a-f]+\.\.[0-9a-f]+.*\n", re.MULTILINE)
_HUNK = re.compile(r"^@@ (.*?) @@.*$", re.MULTILINE)
"""Hunk header; git's settings decide about the text after its numbers."""


def is_same_observation(before: str, after: str, workdir: str = WORKDIR) -> bool:
    """Return whether two texts are equal, ignoring varying parts and trailing white space.

    ``workdir``: name of the repository's folder.
    """
    return before == after or without_volatile_parts(before, workdir) == without_volatile_parts(after, workdir)


def without_volatile_parts(text: str, workdir: str = WORKDIR) -> str:
    """Return the text with placeholders for varying parts."""
    # A sandbox without its own root has the repository in /some/folder/testbed: drop /some/folder.
    text = re.sub(rf"(?:/[\w.+@~-]+)+(?={re.escape(workdir)}(?![\w-]))", "", text)
    for pattern, placeholder in _VOLATILE:
        text = pattern.sub(placeholder, text)
    return "\n".join(line.rstrip() for line in text.replace("\r\n", "\n").split("\n")).strip()


def is_same_patch(before: str, after: str) -> bool:
    """Return whether two diffs make the same changes, ignoring the order of files and the names of blobs."""
    return before == after or _files(before) == _files(after)


def _files(patch: str) -> list[str]:
    """Return a diff's parts, one per file, sorted, without the names of blobs and the text after hunk numbers."""
    begins = re.search(r"^diff --git ", patch, re.MULTILINE)
    files = re.split(r"^(?=diff --git )", patch[begins.start() :] if begins else patch, flags=re.MULTILINE)
    return sorted(_HUNK.sub(r"@@ \1", _BLOBS.sub("", file)).rstrip() for file in files if file.strip())
