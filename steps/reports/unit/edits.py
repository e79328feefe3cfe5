"""Detection of calls that change files, and diffs of their changes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import unified_diff
from typing import Any

from swe_argo.steps.reports.text.visible import make_plain
from swe_argo.steps.reports.unit.conversation import Conversation

MAX_DIFF_LINES = 400
"""Maximum lines on either side: the comparison takes quadratic time."""
NEW_TEXTS = ("new_str", "file_text", "new_string", "patch", "diff")
COMMANDS = ("command", "cmd")


def first_edit(conversation: Conversation) -> int | None:
    """Return the number, from 1, of the first call that looks like an edit of a file; None if there is none."""
    calls = (call for turn in conversation.turns for call in turn.calls)
    return next((number for number, call in enumerate(calls, 1) if _changes_files(call.arguments)), None)


def _changes_files(arguments: Mapping[str, Any]) -> bool:
    """Return whether a call has a new text for a file, or a shell command that writes to one."""
    if any(isinstance(arguments.get(name), str) and arguments[name] for name in NEW_TEXTS):
        return True
    return any(isinstance(text := arguments.get(name), str) and _WRITING_COMMAND.search(text) for name in COMMANDS)


_WRITING_COMMAND = re.compile(
    r"\bsed\s+(?:-\w+\s+)*(?:-\w*i|--in-place)|\bgit\s+apply\b|\bpatch\s+-p|\bapply_patch\b|\btee\s|\bcat\s*<<|"
    r"\bcat\s*>|\.write_text\(|open\([^)\n]*['\"][wa]['\"]"
)


def diff_of_edit(arguments: Mapping[str, Any], limit: int | None) -> list[str]:
    """Return the sanitized diff of a replacement; empty for other calls, or if it is too long to compare or show.

    Hunk headers are replaced, because their line numbers would only count within the fragment.
    """
    old, new = (
        next((t for n in names if isinstance(t := arguments.get(n), str)), None) for names in _REPLACEMENT_NAMES
    )
    if not old or new is None or (limit is not None and len(old) + len(new) > limit):
        return []
    before, after = (make_plain(text.removesuffix("\n")).split("\n") for text in (old, new))
    if max(len(before), len(after)) > MAX_DIFF_LINES:
        return []
    # The first three lines are file names and the first hunk header.
    lines = [*unified_diff(before, after, lineterm="", n=3)][3:]
    return ["…" if line.startswith("@@") else line for line in lines]


_REPLACEMENT_NAMES = (("old_str", "old_string"), ("new_str", "new_string"))
