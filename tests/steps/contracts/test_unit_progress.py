"""How far a step has come: in its file and in its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from steps.contracts.trajectory import ToolCall, Turn, Usage
from steps.contracts.unit_progress import ACTION_WIDTH, PROGRESS, ProgressWriter, last_action, parse_progress

TURN = Turn(
    step_id=3,
    source="agent",
    message="I look.",
    tool_calls=[ToolCall(tool_call_id="c", function_name="bash", arguments={"command": "ls\n -la", "restart": False})],
)


def test_the_file_and_the_last_line_of_the_log_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = ProgressWriter(tmp_path / "out")
    writer.enter("prepare")  # of nothing that began
    assert not (tmp_path / "out").exists()
    writer.begin("r", "o__r-1", 2, "solve")
    writer.enter("agent")
    writer.take_turn(TURN, 1, 40, Usage(calls=1, requests=1, prompt_tokens=9))
    writer.begin("r", "o__r-1", 2, "solve")  # its second sandbox
    found = parse_progress((tmp_path / "out" / PROGRESS).read_bytes())
    assert found is not None
    assert (found.attempt, found.phase, found.turn, found.most_turns) == (2, "agent", 1, 40)
    assert found.action == "bash: ls -la False"
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert parse_progress(f"2026-11-22T10:00:00Z {lines[-1]}") == found


@pytest.mark.parametrize("text", ["", "{", '{"run": "r"}', "progress", "progress {}", "a line of the step's log"])
def test_what_holds_no_progress_is_none(text: str) -> None:
    assert parse_progress(text) is None


def test_a_turn_without_calls_is_told_by_how_its_words_begin() -> None:
    silent = TURN.model_copy(update={"tool_calls": None})
    assert last_action(silent) == "I look."
    assert len(last_action(silent.model_copy(update={"message": "word " * 1000}))) == ACTION_WIDTH


def test_a_unit_goes_on_where_nobody_can_write_how_far_it_is(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file is in the way")
    ProgressWriter(tmp_path / "out").begin("r", "o__r-1", 1, "grade")
