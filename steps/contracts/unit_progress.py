"""How far a step has come with its unit: in a file beside its outputs, and a line on its standard output."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from steps.contracts.record import Part
from steps.contracts.trajectory import Turn, Usage

PROGRESS = ".progress.json"
"""File among the outputs of a step at work. It is no output: nothing that ended is told by it."""
MARK = "progress "
"""What such a line on standard output begins with; the rest is the JSON of a UnitProgress."""
ACTION_WIDTH = 120

Phase = Literal["create", "prepare", "agent", "patch", "tests", "verdict", "counter_proof"]


class UnitProgress(Part):
    """One unit that a step works on at this moment."""

    run: str
    instance_id: str
    attempt: int
    step: str
    """solve or grade."""
    phase: Phase
    since: str
    """When the phase began; ISO 8601, UTC."""
    turn: int = 0
    """Answers of the agent so far."""
    most_turns: int | None = None
    """How many it may give; None where nothing bounds them."""
    usage: Usage = Usage()
    """What this try has taken of its model."""
    action: str = ""
    """What the agent did last: a call, or how its words began. Foreign text: one line, not made harmless yet."""


def parse_progress(data: str | bytes) -> UnitProgress | None:
    """The progress in the file, or in one line of a step's log; None where it holds none."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    if not text.startswith("{"):
        _, mark, text = text.partition(MARK)
        if not mark:
            return None
    try:
        return UnitProgress.model_validate_json(text)
    except ValidationError:  # broken off, or of another version
        return None


def last_action(turn: Turn) -> str:
    """The call that a turn made last, or how its message begins, in a line."""
    text = turn.message
    if turn.tool_calls:
        call = turn.tool_calls[-1]
        words = " ".join(str(value) for value in call.arguments.values() if not isinstance(value, dict | list))
        text = f"{call.function_name}: {words}" if words else call.function_name
    line = " ".join(text[: 4 * ACTION_WIDTH].split())
    return line if len(line) <= ACTION_WIDTH else f"{line[: ACTION_WIDTH - 1]}…"


class ProgressWriter:
    """Writes how far a step has come, each time that it comes further; without ``folder`` it writes nothing.

    Never raises: a unit does not fail for want of somebody who watches it.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._file = folder / PROGRESS if folder else None
        self._progress: UnitProgress | None = None

    def begin(self, run: str, instance_id: str, attempt: int, step: str) -> None:
        """The step has begun to make its sandbox; once begun it stays begun."""
        if self._progress is None:
            self._progress = UnitProgress(
                run=run, instance_id=instance_id, attempt=attempt, step=step, phase="create", since=_now()
            )
            self._write()

    def enter(self, phase: Phase) -> None:
        """Another phase begins."""
        if self._progress is not None and self._progress.phase != phase:
            self._progress = self._progress.model_copy(update={"phase": phase, "since": _now()})
            self._write()

    def take_turn(self, turn: Turn, number: int, most: int | None, usage: Usage) -> None:
        """The agent has given its answer of that number."""
        if self._progress is not None:
            values = {"turn": number, "most_turns": most, "usage": usage, "action": last_action(turn)}
            self._progress = self._progress.model_copy(update=values)
            self._write()

    def _write(self) -> None:
        if self._file is None or self._progress is None:
            return
        data = self._progress.model_dump_json(exclude_defaults=True)
        with suppress(OSError):
            sys.stdout.write(f"{MARK}{data}\n")
            sys.stdout.flush()
            self._file.parent.mkdir(parents=True, exist_ok=True)
            part = self._file.with_name(f"{PROGRESS}.part")
            part.write_text(data, "utf-8")
            part.replace(self._file)


SILENT = ProgressWriter()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
