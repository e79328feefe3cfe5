from __future__ import annotations

import json
from typing import Any

import pytest

from swe_argo.steps.reports.unit.conversation import read_conversation
from swe_argo.steps.reports.unit.edits import MAX_DIFF_LINES, diff_of_edit, first_edit


def test_edit_fragments_are_separate() -> None:
    old = "\n".join(f"line {n}" for n in range(30)) + "\n"
    new = old.replace("line 3\n", "line three\n").replace("line 25\n", "")
    assert diff_of_edit({"old_str": old, "new_str": new}, None) == [
        *(" line 0", " line 1", " line 2", "-line 3", "+line three", " line 4", " line 5", " line 6"),
        "…",
        *(" line 22", " line 23", " line 24", "-line 25", " line 26", " line 27", " line 28"),
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        {"new_str": "x"},
        {"old_str": "x"},
        {"old_str": "", "new_str": "x"},
        {"old_str": 5, "new_str": "x"},
        {"old_str": "same", "new_str": "same"},
        {"old_str": "x" * 3000, "new_str": "y" * 3000},
        {"old_str": "x\n" * (MAX_DIFF_LINES + 1), "new_str": "y"},
    ],
)
def test_unsuitable_edit_has_no_diff(arguments: dict[str, Any]) -> None:
    assert diff_of_edit(arguments, 5000) == []


@pytest.mark.parametrize(
    ("arguments", "is_edit"),
    [
        ({"command": "create", "file_text": "x"}, True),
        ({"command": "sed -i s/a/b/ x.py"}, True),
        ({"cmd": "cat > x.py <<'EOF'\nprint()\nEOF"}, True),
        ({"command": "git apply fix.patch"}, True),
        ({"command": "python -c 'import pathlib; pathlib.Path().write_text(str())'"}, True),
        ({"command": "sed -n 1,20p x.py"}, False),
        ({"command": "cat x.py && grep -rn patch ."}, False),
        ({"command": 7}, False),
    ],
)
def test_first_edit_is_found(arguments: dict[str, Any], is_edit: bool) -> None:
    def call(**arguments: Any) -> dict[str, Any]:
        return {"tool_call_id": "1", "function_name": "f", "arguments": arguments}

    steps = [{"source": "agent", "message": "", "tool_calls": [call(command="ls"), call(**arguments)]}]
    conversation = read_conversation(json.dumps({"steps": steps}).encode())
    assert conversation.calls == 2
    assert first_edit(conversation) == (2 if is_edit else None)
