"""A file editor in words, as agents have it: the commands that str_replace_editor and its kin share."""

from __future__ import annotations

import json
import posixpath
import shlex
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from steps.errors import InfraError
from steps.sandbox.protocol import WORKDIR, Sandbox

MAX_VIEW = 10_000
"""Characters of a file that are shown (R2E-Gym, file_editor)."""


_USABLE = """path={path}; dir=$(dirname "$path")
mkdir -p -- "$dir" && [ -w "$dir" ] && {{ [ ! -e "$path" ] || {{ [ -r "$path" ] && [ -w "$path" ]; }}; }}"""


class RefusedError(Exception):
    """The edit cannot be made; the message is what the agent reads."""


@dataclass
class Editor:
    """Edits files of one sandbox and remembers them, so that ``undo_edit`` works. Bytes that are not UTF-8 survive."""

    sandbox: Sandbox
    timeout_s: float
    _before: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def act(self, arguments: dict[str, Any]) -> str:
        """Perform one command. Raises RefusedError, and what Sandbox raises when the machine is lost."""
        command, path = str(arguments.get("command", "")), str(arguments.get("path", ""))
        if not path:
            raise RefusedError("path is missing")
        path = posixpath.normpath(posixpath.join(WORKDIR, path))
        try:
            match command:
                case "view":
                    return self._view(path, _range(arguments.get("view_range")))
                case "create":
                    return self._create(path, _text(arguments, "file_text"))
                case "str_replace":
                    return self._replace(path, _text(arguments, "old_str"), str(arguments.get("new_str") or ""))
                case "insert":
                    new = arguments.get("new_str", arguments.get("insert_text"))
                    return self._insert(path, _number(arguments.get("insert_line")), str(new or ""))
                case "undo_edit":
                    return self._undo(path)
        except FileNotFoundError:
            raise RefusedError(f"{path} does not exist") from None
        except IsADirectoryError:
            raise RefusedError(f"{path} is a folder; only view works on it") from None
        except InfraError as error:
            # Not the machine's fault where the path itself is one that nobody could read or write.
            check = self.sandbox.exec(_USABLE.format(path=shlex.quote(path)), timeout_s=self.timeout_s, merge=True)
            if check.exit_code == 0 or check.timed_out:
                raise
            raise RefusedError(f"{path} cannot be used: {check.stdout.decode('utf-8', 'replace')}") from error
        raise RefusedError(f"unknown command {command!r}")

    def _read(self, path: str) -> str:
        return self.sandbox.read(path).decode("utf-8", "surrogateescape")

    def _write(self, path: str, text: str, *, before: str) -> None:
        try:
            data = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise RefusedError(f"{path}: the text holds half of a surrogate pair and cannot be written") from None
        self.sandbox.write(path, data)
        self._before[path].append(before)

    def _create(self, path: str, text: str) -> str:
        try:
            self._read(path)
        except FileNotFoundError:
            self._write(path, text, before="")
            return f"{path} was created"
        raise RefusedError(f"{path} exists already")

    def _replace(self, path: str, old: str, new: str) -> str:
        text = self._read(path)
        if old not in text and "\r\n" in text:
            # Recorded through an editor that reads lines: it never saw the carriage returns.
            old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        found = text.count(old) if old else 0
        if found != 1:
            raise RefusedError(f"old_str occurs {found} times in {path}, not once")
        self._write(path, text.replace(old, new), before=text)
        return f"{path} was edited"

    def _insert(self, path: str, line: int, new: str) -> str:
        text = self._read(path)
        lines = text.split("\n")
        if not 0 <= line <= len(lines):
            raise RefusedError(f"insert_line must be from 0 to {len(lines)}")
        self._write(path, "\n".join([*lines[:line], *new.split("\n"), *lines[line:]]), before=text)
        return f"{path} was edited"

    def _undo(self, path: str) -> str:
        if not self._before[path]:
            raise RefusedError(f"{path} was not edited")
        text = self._before[path].pop()
        self._write(path, text, before="")
        self._before[path].pop()
        return f"the last edit of {path} was undone"

    def _view(self, path: str, lines: tuple[int, int] | None) -> str:
        try:
            text = self._read(path)
        except IsADirectoryError:
            shown = self.sandbox.exec(
                f"find {shlex.quote(path)} -maxdepth 2 -not -path '*/.*' | sort", timeout_s=self.timeout_s
            )
            return shown.stdout.decode("utf-8", "replace")[:MAX_VIEW]
        first, last = lines or (1, -1)
        numbered = list(enumerate(text.splitlines(), 1))[max(0, first - 1) : None if last < 0 else last]
        return "\n".join(f"{number:6d}\t{line}" for number, line in numbered)[:MAX_VIEW]


def _text(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str):
        raise RefusedError(f"{name} is missing")
    return value


def _number(value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise RefusedError("insert_line is not a number") from None


def _range(value: object) -> tuple[int, int] | None:
    """``[1, 20]``, as a list or as text; anything else shows the whole file."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if isinstance(value, list) and len(value) == 2 and all(isinstance(number, int) for number in value):
        return value[0], value[1]
    return None
