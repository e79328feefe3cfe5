"""How far a step has come with its unit: in a file beside its outputs, and a line on its standard output."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator

from swe_argo.steps.contracts.record import AnyText, Part, to_json
from swe_argo.steps.contracts.trajectory import Turn, Usage

PROGRESS = ".progress.json"
"""File among the outputs of a step at work. It is no output: nothing that ended is told by it."""
MARK = "progress "
"""What such a line on standard output begins with; the rest is the JSON of a UnitProgress."""
_MARKED = re.compile(rf"(?:\d{{4}}-\d\d-\d\dT\S+ )?{MARK}")
"""Such a line's begin, with the moment that a cluster may put before each line; elsewhere in a line the mark is text
of others, as of a command that a step logs."""
ACTION_WIDTH = 120

Phase = Literal["create", "prepare", "agent", "patch", "tests", "verdict", "confirm"]


def _moment(text: str) -> str:
    """Raises ValueError where it is no moment, or one of no zone."""
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("it has no zone")
    return text


class UnitProgress(Part):
    """One unit that a step works on at this moment."""

    run: str
    instance_id: str
    attempt: int
    step: str
    """solve or grade."""
    phase: Phase
    since: Annotated[str, AfterValidator(_moment)]
    """When the phase began; ISO 8601, UTC."""
    turn: int = 0
    """Answers of the agent so far."""
    most_turns: int | None = None
    """How many it may give; None where nothing bounds them."""
    usage: Usage = Usage()
    """What this try has taken of its model."""
    action: AnyText = ""
    """What the agent did last: a call, or how its words began. Foreign text: one line, not made harmless yet."""

    def to_line(self) -> str:
        """JSON, ASCII only: any text survives, and none of it acts on a terminal that shows a step's log."""
        return to_json(self.model_dump(mode="json", exclude_defaults=True))


def parse_progress(data: str | bytes) -> UnitProgress | None:
    """The progress in the file, or in one line of a step's log; None where it holds none."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    if not text.startswith("{"):
        marked = _MARKED.match(text)
        if marked is None:
            return None
        text = text[marked.end() :]
    try:
        return UnitProgress.model_validate(json.loads(text))
    except (ValueError, RecursionError):  # broken off, or of another version
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

    Never raises, whatever goes wrong: a unit does not fail for want of somebody who watches it.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._file = folder / PROGRESS if folder else None
        self._progress: UnitProgress | None = None

    def begin(self, run: str, instance_id: str, attempt: int, step: str) -> None:
        """The step has begun to make its sandbox; once begun it stays begun."""
        if self._progress is None:
            with suppress(Exception):
                self._progress = UnitProgress(
                    run=run, instance_id=instance_id, attempt=attempt, step=step, phase="create", since=_now()
                )
                self._write(self._progress)

    def enter(self, phase: Phase) -> None:
        """Another phase begins."""
        if self._progress is not None and self._progress.phase != phase:
            self._change({"phase": phase, "since": _now()})

    def take_turn(self, turn: Turn, number: int, most: int | None, usage: Usage) -> None:
        """The agent has given its answer of that number."""
        with suppress(Exception):
            self._change({"turn": number, "most_turns": most, "usage": usage, "action": last_action(turn)})

    def end(self) -> None:
        """The step has ended: its outputs tell the rest."""
        if self._file is not None:
            with suppress(Exception):
                self._file.unlink(missing_ok=True)
                _part(self._file).unlink(missing_ok=True)

    def _change(self, values: dict[str, object]) -> None:
        if self._progress is not None:
            with suppress(Exception):
                self._progress = self._progress.model_copy(update=values)
                self._write(self._progress)

    def _write(self, progress: UnitProgress) -> None:
        """Each of the two is tried: a log that nobody takes any more is no reason to write no file."""
        if self._file is None:
            return
        data = progress.to_line()
        with suppress(Exception):  # there may be no standard output at all
            # Past the buffer of sys.stdout: what that could not write it tries again at exit, and fails the process.
            os.write(sys.stdout.fileno(), f"{MARK}{data}\n".encode())
        self._file.parent.mkdir(parents=True, exist_ok=True)
        part = _part(self._file)
        part.write_text(data, "ascii")
        part.replace(self._file)


SILENT = ProgressWriter()


def _part(file: Path) -> Path:
    return file.with_name(f"{file.name}.part")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
