"""How far a step has come: in its file and in its log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.trajectory import ToolCall, Turn, Usage
from swe_argo.steps.contracts.unit_progress import ACTION_WIDTH, PROGRESS, ProgressWriter, last_action, parse_progress
from swe_argo.steps.reports.unit.progress import describe_progress

TURN = Turn(
    step_id=3,
    source="agent",
    message="I look.",
    tool_calls=[ToolCall(tool_call_id="c", function_name="bash", arguments={"command": "ls\n -la", "restart": False})],
)


def test_progress_file_equals_log_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    writer = ProgressWriter(tmp_path / "out")
    writer.enter("prepare")  # of nothing that began
    assert not (tmp_path / "out").exists()
    writer.begin("r", "o__r-1", 2, "solve")
    writer.enter("agent")
    writer.take_turn(TURN, 1, 40, Usage(calls=1, requests=1, prompt_tokens=9))
    writer.begin("r", "o__r-1", 2, "solve")  # its second sandbox
    progress = parse_progress((tmp_path / "out" / PROGRESS).read_bytes())
    assert progress is not None
    assert (progress.attempt, progress.phase, progress.turn, progress.most_turns) == (2, "agent", 1, 40)
    assert progress.action == "bash: ls -la False"
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 3
    assert parse_progress(f"2026-11-22T10:00:00Z {lines[-1]}") == progress


PROGRESS_LINE = (
    'progress {"run":"r","instance_id":"x","attempt":1,"step":"solve","phase":"agent","since":"2026-11-22T10:00:00Z"}'
)


def test_progress_needs_its_mark() -> None:
    assert parse_progress(PROGRESS_LINE) is not None
    assert parse_progress(f"tests: {PROGRESS_LINE}") is None
    assert parse_progress(f"2026-11-22 10:00:00 DEBUG command 'echo {PROGRESS_LINE}': started") is None


@pytest.mark.parametrize("since", ["soon", "", "2026-11-22T10:00:00"])
def test_progress_needs_valid_time(since: str) -> None:
    assert parse_progress(PROGRESS_LINE.replace("2026-11-22T10:00:00Z", since)) is None


@pytest.mark.parametrize("text", ["", "{", '{"run": "r"}', "progress", "progress {}", "a line of the step's log"])
def test_other_text_is_no_progress(text: str) -> None:
    assert parse_progress(text) is None


def test_last_action_can_be_message() -> None:
    silent = TURN.model_copy(update={"tool_calls": None})
    assert last_action(silent) == "I look."
    assert len(last_action(silent.model_copy(update={"message": "word " * 1000}))) == ACTION_WIDTH


@pytest.mark.parametrize(
    "text", ["caf\udce9", "\ud83d", "\x1b[2J\x1b]0;title\x07", "\x00\x9b31m\u202e\u2028", "é漢\U0001f600"]
)
def test_progress_round_trips(tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str) -> None:
    call = ToolCall(tool_call_id="c", function_name=text, arguments={text: f"a{text}b"})
    writer = ProgressWriter(tmp_path)
    writer.begin("r", "o__r-1", 1, "solve")
    writer.take_turn(TURN.model_copy(update={"tool_calls": [call]}), 1, None, Usage())
    data = (tmp_path / PROGRESS).read_bytes()
    logged = capfd.readouterr().out.splitlines()[-1]
    for whole in (data.decode(), logged):
        assert whole.isascii()
        assert whole.isprintable()
        progress = parse_progress(whole)
        assert progress is not None
        assert progress.action == " ".join(f"{text}: a{text}b".split())
        assert describe_progress(progress.model_copy(update={"phase": "agent"})).isprintable()


def _work_through(folder: Path) -> None:
    writer = ProgressWriter(folder)
    writer.begin("r", "o__r-1", 1, "solve")
    writer.enter("agent")
    writer.take_turn(TURN, 1, 40, Usage())
    writer.end()


def test_unwritable_progress_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file is in the way")
    _work_through(tmp_path / "out")
    (tmp_path / "folder" / f"{PROGRESS}.part").mkdir(parents=True)
    _work_through(tmp_path / "folder")


def test_broken_turn_never_fails_unit(tmp_path: Path) -> None:
    writer = ProgressWriter(tmp_path)
    writer.begin("r", "o__r-1", 1, "solve")
    odd: Any = None  # whatever breaks in the telling
    writer.take_turn(odd, 1, None, Usage())
    writer.enter("patch")
    progress = parse_progress((tmp_path / PROGRESS).read_bytes())
    assert progress is not None
    assert (progress.phase, progress.turn) == ("patch", 0)


WORK = (
    "from pathlib import Path; from swe_argo.steps.contracts.unit_progress import ProgressWriter;"
    "writer = ProgressWriter(Path('out')); writer.begin('r', 'o__r-1', 1, 'solve'); writer.enter('agent')"
)


@pytest.mark.parametrize("kind", ["full", "gone", "closed"])
def test_broken_log_keeps_progress_file(tmp_path: Path, kind: str) -> None:
    """A disk that is full, a reader that went away, no standard output at all: its end is 0, its file is there."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    reader, log = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", WORK]
    if kind == "full":
        os.close(log)
        log = os.open("/dev/full", os.O_WRONLY)
    if kind == "closed":
        command = ["sh", "-c", 'exec "$0" -c "$1" >&-', sys.executable, WORK]
    with os.fdopen(log, "wb") as out:
        result = subprocess.run(
            command, cwd=tmp_path, env=environment, stdout=out, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (result.returncode, result.stderr) == (0, "")
    progress = parse_progress((tmp_path / "out" / PROGRESS).read_bytes())
    assert progress is not None
    assert progress.phase == "agent"


def test_ended_step_has_no_progress(tmp_path: Path) -> None:
    (tmp_path / f"{PROGRESS}.part").write_text("broken off")
    _work_through(tmp_path)
    assert list(tmp_path.iterdir()) == []
