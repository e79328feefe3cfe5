"""Reversal of a unified diff as text."""

from __future__ import annotations

import re
from collections import deque

_HUNK = re.compile(r"@@ -(\d+(?:,(\d+))?) \+(\d+(?:,(\d+))?) @@(.*)", re.DOTALL)
_COUNTERPART = {
    "old mode ": "new mode ",
    "new mode ": "old mode ",
    "rename from ": "rename to ",
    "rename to ": "rename from ",
    "--- ": "+++ ",
    "+++ ": "--- ",
}
_NEW, _DELETED = "new file mode ", "deleted file mode "
_INDEX = re.compile(r"index (\S+?)\.\.(\S+)(.*)", re.DOTALL)


def reverse_patch(patch: str) -> str:
    """Return the reverse of ``patch``, with or without git's headers.

    Handles new, deleted and renamed files, modes and missing newlines; drops text before the first file. Raises
    ValueError for binary files and copies, which have no textual reverse, and for an incomplete or invalid diff.
    """
    lines = deque(patch.removesuffix("\n").split("\n"))
    reverse: list[str] = []
    header: list[str] = []
    while lines:
        line = lines.popleft()
        if line.startswith("diff --git "):
            reverse += _reverse_header(header)
            header = [line]
        elif hunk := _HUNK.match(line):
            # A hunk needs a header before it, or another hunk.
            if not any(entry.startswith("+++ ") for entry in header) and not (reverse and not header):
                raise ValueError("is not a unified diff: a hunk belongs to no file")
            reverse += _reverse_header(header)
            header = []
            reverse += _reverse_hunk(hunk, lines)
        elif header or line.startswith("--- "):
            header.append(line)
    reverse += _reverse_header(header)
    if not reverse:
        raise ValueError("is not a unified diff: it names no file")
    return "\n".join(reverse) + "\n"


def _reverse_header(header: list[str]) -> list[str]:
    """Reverse the header lines of a file, git's or a plain diff's."""
    values = {key: line.removeprefix(key) for line in header for key in _COUNTERPART if line.startswith(key)}
    return [_reverse_header_line(line, values) for line in header]


def _reverse_header_line(line: str, values: dict[str, str]) -> str:
    """Reverse a header line. ``values`` are the rests of the file's lines after each key of ``_COUNTERPART``.

    Raises ValueError for a copied or binary file, and for a line without its counterpart.
    """
    if line.startswith(("copy from ", "copy to ")):
        raise ValueError("copies a file, which has no textual reverse")
    if line.startswith(("GIT binary patch", "Binary files ")):
        raise ValueError("changes a binary file, which has no textual reverse")
    if line.startswith("diff --git ") and "rename from " in values and "rename to " in values:
        return f"diff --git {_add_side(values['rename to '], 'a')} {_add_side(values['rename from '], 'b')}"
    for key, counterpart in _COUNTERPART.items():
        if line.startswith(key):
            if counterpart not in values:
                raise ValueError(f"is not a unified diff: {line!r} without a line {counterpart.strip()!r}")
            name = values[counterpart]
            return key + (_other_side(name, key) if key in ("--- ", "+++ ") else name)
    if line.startswith(_NEW):
        return _DELETED + line.removeprefix(_NEW)
    if line.startswith(_DELETED):
        return _NEW + line.removeprefix(_DELETED)
    if index := _INDEX.fullmatch(line):
        return f"index {index[2]}..{index[1]}{index[3]}"
    return line


def _reverse_hunk(hunk: re.Match[str], lines: deque[str]) -> list[str]:
    """Reverse the next hunk of ``lines``, of the header's length, with removed lines before added ones.

    Raises ValueError if the lines do not give that length or are no lines of a diff.
    """
    old, new = (1 if count is None else int(count) for count in (hunk[2], hunk[4]))
    reverse = [f"@@ -{hunk[3]} +{hunk[1]} @@{hunk[5]}"]
    removed: list[str] = []
    added: list[str] = []
    last = reverse
    # The header's lengths exclude the mark of a missing final newline.
    while old > 0 or new > 0 or (lines and lines[0].startswith("\\")):
        if not lines:
            raise ValueError("is truncated: a hunk is shorter than its header says")
        line = lines.popleft()
        sign, content = line[:1], line[1:]
        if sign == "\\":
            last.append(line)
        elif sign == "-":
            added.append(f"+{content}")
            last = added
        elif sign == "+":
            removed.append(f"-{content}")
            last = removed
        elif sign in ("", " "):
            reverse += [*removed, *added, line]
            removed, added, last = [], [], reverse
        else:
            raise ValueError(f"is not a unified diff: {line[:40]!r} is invalid in a hunk")
        old -= sign in ("", " ", "-")
        new -= sign in ("", " ", "+")
    if old or new:
        raise ValueError("is not a unified diff: a hunk is longer than its header says")
    return [*reverse, *removed, *added]


def _other_side(name: str, key: str) -> str:
    """Return a name with the other side's prefix: ``b/x`` as ``a/x`` after ``---``."""
    old, new = ("b", "a") if key == "--- " else ("a", "b")
    for quote in ("", '"'):
        if name.startswith(f"{quote}{old}/"):
            return f"{quote}{new}/" + name.removeprefix(f"{quote}{old}/")
    return name


def _add_side(name: str, side: str) -> str:
    return f'"{side}/{name[1:]}' if name.startswith('"') else f"{side}/{name}"
