"""Changes of a patch by file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from swe_argo.steps.reports.text.visible import cut_line, make_visible

NAME_WIDTH = 160
MAX_FILES = 100


@dataclass(frozen=True, slots=True)
class PatchFile:
    """A file of a patch."""

    name: str
    """Sanitized for display and cut."""
    added: int
    removed: int
    """Numbers of lines."""


def patch_files(patch: bytes) -> list[PatchFile]:
    """Return the files in order. Line counts come from hunk headers, because content may look like a header."""
    files: list[PatchFile] = []
    name, added, removed, hunks = b"", 0, 0, 0
    old = new = 0  # remaining lines of the hunk
    for line in [*patch.split(b"\n"), b"diff --git "]:  # the added line ends the last file
        sign = line[:1]
        if (old > 0 or new > 0) and sign in (b"+", b"-", b" ", b"\\", b""):
            added += sign == b"+"
            removed += sign == b"-"
            old -= sign in (b"-", b" ", b"")
            new -= sign in (b"+", b" ", b"")
        elif head := _HUNK.match(line):
            old, new = (1 if group is None else int(group) for group in head.groups())
            hunks += 1
        elif line.startswith((b"diff --git ", b"--- ")):
            if name and (hunks or line.startswith(b"diff ")):
                files.append(PatchFile(_cut_name(name), added, removed))
                name, added, removed, hunks = b"", 0, 0, 0
            name = line.rpartition(b" b/")[2] if line.startswith(b"diff ") else _path_in(line, b"a/") or name
        elif line.startswith(b"+++ "):
            name = _path_in(line, b"b/") or name
    return files


_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


def _path_in(line: bytes, prefix: bytes) -> bytes:
    """Return the file name of a ``---`` or ``+++`` line; empty for /dev/null."""
    path = line[4:].partition(b"\t")[0].strip()
    return b"" if path == b"/dev/null" else path.removeprefix(prefix)


def _cut_name(name: bytes) -> str:
    return cut_line(make_visible(name.decode(errors="surrogateescape").strip()), NAME_WIDTH)
