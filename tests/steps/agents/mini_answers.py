"""What a mini-swe-agent's model says, in either format."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model_server import Answer, Call, Fault, Script

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt"
EDIT = "sed -i 's/2/3/' a.py && git diff -- a.py > patch.txt"
FORMATS = pytest.mark.parametrize("fn_calling", [True, False], ids=["function calling", "text"])


def say(command: str, fn_calling: bool, **more: Any) -> Answer:
    """One command, in either format."""
    if fn_calling:
        return Answer("THOUGHT: next", (Call("bash", {"command": command}),), **more)
    return Answer(f"THOUGHT: next\n\n```mswea_bash_command\n{command}\n```", **more)


def in_turn(*answers: Answer | Fault) -> Script:
    """One answer a request: what is malformed leaves no answer in the conversation to count by."""
    remaining = list(answers)
    return lambda request: remaining.pop(0) if len(remaining) > 1 else remaining[0]
