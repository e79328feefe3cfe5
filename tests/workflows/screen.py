"""A terminal for programs under test: a pty of a given width, and what a person sees on it at the end."""

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
    """(exit code, all that a program wrote) where its input and output are a terminal of that size."""
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
    except OSError:  # so Linux tells that the other side is closed
        pass
    os.close(ours)
    return process.wait(), output.decode()


class Screen:
    """Lines of text as a terminal of so many columns shows them, with all that was scrolled away.

    It knows what rich sends: text, line ends, colours, cursor up, erasing a line, and the cursor hidden and shown. Any
    other code is an error: what it does would not be known.
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
        """What is seen, without blanks at the ends and empty lines at the end."""
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
            raise AssertionError(f"a code that this terminal does not know: {code[0]!r}")

    def _write(self, text: str) -> None:
        assert "\x1b" not in text, f"a code that this terminal does not know: {text!r}"
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
