"""A terminal for programs under test: a pty of a given size, and the text that it shows at the end."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

_CODE = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|\x1b\](?:[^\x07\x1b]*)(?:\x07|\x1b\\)")


def run_at_terminal(
    words: Sequence[str], columns: int, rows: int, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> tuple[int, str]:
    """Run a program at a terminal of this size; return its exit code and output."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    quiet = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR", "CI")}
    process = subprocess.Popen(
        words,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        cwd=cwd,
        env=quiet | {"TERM": "xterm-256color"} | dict(env or {}),
    )
    os.close(theirs)
    output = bytearray()
    try:
        while part := os.read(ours, 65536):
            output += part
    except OSError:  # on Linux: the other side is closed
        pass
    os.close(ours)
    return process.wait(), output.decode()


class Screen:
    """The text that a terminal of this size shows, including the part scrolled away.

    It supports the codes that rich sends: line ends, colours, cursor up, erase line, hide and show the cursor. Other
    codes are an error.
    """

    def __init__(self, columns: int, rows: int, text: str) -> None:
        self._columns, self._rows = columns, rows
        self._cells: list[dict[int, str]] = [{}]
        self._row = self._column = 0
        place = 0
        for code in _CODE.finditer(text):
            self._write(text[place : code.start()])
            self._obey(code)
            place = code.end()
        self._write(text[place:])

    @property
    def lines(self) -> list[str]:
        """The visible lines, without trailing blanks and trailing empty lines."""
        rows = ["".join(row.get(n, " ") for n in range(max(row, default=-1) + 1)).rstrip() for row in self._cells]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def _obey(self, code: re.Match[str]) -> None:
        how, command = code[1] or "", code[2]
        if command in (None, "m", "h", "l"):  # links, colours, modes
            return
        if command == "A":
            self._row = max(0, len(self._cells) - self._rows, self._row - int(how or 1))
        elif command == "K" and how == "2":
            self._cells[self._row] = {}
        else:
            raise AssertionError(f"an unsupported code: {code[0]!r}")

    def _write(self, text: str) -> None:
        assert "\x1b" not in text, f"an unsupported code: {text!r}"
        for letter in text:
            if letter == "\r":
                self._column = 0
            elif letter == "\n":
                self._down()
            else:
                if self._column == self._columns:  # broken where the next letter does not fit
                    self._column = 0
                    self._down()
                self._cells[self._row][self._column] = letter
                self._column += 1

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._cells):
            self._cells.append({})
