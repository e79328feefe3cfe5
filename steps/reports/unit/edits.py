"""Detection of calls that change files, and diffs of their changes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import unified_diff
from typing import Any

from swe_argo.steps.reports.text.visible import make_plain
from swe_argo.steps.reports.unit.conversation import Conversation

LINES_COMPARED = 400
"""Maximum lines on either side: the comparison takes quadratic time."""
NEW_TEXTS = ("new_str", "file_text", "new_string", "patch", "diff")
COMMANDS = ("command", "cmd")


def first_edit(conversation: Conversation) -> int | None:
    """Return the number, from 1, of the first call that looks like an edit: new text, or a shell that writes a file."""
    calls = (call for turn in conversation.turns for call in turn.calls)
    return next((number for number, call in enumerate(calls, 1) if _changes_files(call.arguments)), None)


def _changes_files(arguments: Mapping[str, Any]) -> bool:
    if any(isinstance(arguments.get(name), str) and arguments[name] for name in NEW_TEXTS):
        return True
    return any(isinstance(text := arguments.get(name), str) and _WRITES.search(text) for name in COMMANDS)


_WRITES = re.compile(
    r"\bsed\s+(?:-\w+\s+)*(?:-\w*i|--in-place)|\bgit\s+apply\b|\bpatch\s+-p|\bapply_patch\b|\btee\s|\bcat\s*<<|"
    r"\bcat\s*>|\.write_text\(|open\([^)\n]*['\"][wa]['\"]"
)


def diff_of_edit(arguments: Mapping[str, Any], limit: int | None) -> list[str]:
    """Return the diff lines of a replacement, sanitized; empty if it is none, or too long to compare or show.

    Without hunk headers: their line numbers are those of the fragment and mean nothing.
    """
    old, new = (next((t for n in names if isinstance(t := arguments.get(n), str)), None) for names in _REPLACED)
    if not old or new is None or (limit is not None and len(old) + len(new) > limit):
        return []
    before, after = (make_plain(text.removesuffix("\n")).split("\n") for text in (old, new))
    if max(len(before), len(after)) > LINES_COMPARED:
        return []
    lines = [*unified_diff(before, after, lineterm="", n=3)][3:]
    return ["…" if line.startswith("@@") else line for line in lines]


_REPLACED = (("old_str", "old_string"), ("new_str", "new_string"))
