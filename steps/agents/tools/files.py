"""Files of a sandbox for an editor: complete texts, with an edit history."""

from __future__ import annotations

import codecs
import shlex
from collections import defaultdict
from dataclasses import dataclass, field

from swe_argo.steps.errors import InfraError
from swe_argo.steps.sandbox.protocol import Sandbox


def decode(data: bytes) -> tuple[str, str]:
    """Return a file's text and its encoding: UTF-8, else Latin-1, in which every byte is a character."""
    encoding = "utf-8-sig" if data.startswith(codecs.BOM_UTF8) else "utf-8"
    try:
        return data.decode(encoding), encoding
    except UnicodeDecodeError:
        return data.decode("latin-1"), "latin-1"


MAX_BYTES = 10 << 20
"""Largest file that can be opened (OpenHands' editor)."""
MAX_UNDOS = 10
"""Number of edits per file that can be undone (OpenHands' editor), fewer for large files:"""
REMEMBERED_BYTES = 16_000_000

_READ_SCRIPT = f"""p={{path}}
[ -e "$p" ] || exit 41
[ ! -d "$p" ] || exit 42
[ -f "$p" ] || exit 43
[ -r "$p" ] || exit 44
[ $(wc -c <"$p") -le {MAX_BYTES} ] || exit 45
[ ! -L "$p" ] || p=$(readlink -f -- "$p")
printf '%s\\0' "$p"; exec cat -- "$p\""""
_REFUSED = {
    41: "The path {path} does not exist.",
    43: "{path} is not a regular file.",
    44: "{path} cannot be read.",
    45: f"{{path}} is larger than {MAX_BYTES >> 20} MB: use the shell to look at parts of it.",
}
_LIST_SCRIPT = """cd -- {path} || exit
all() {{ find -L . -mindepth 1 -maxdepth 2 -not -path '*/.*' "$@"; }}
{{ all -type d -exec printf '%s/\\n' {{}} +; all -not -type d; }} 2>/dev/null | head -c 1000000
printf '\\0'; find . -mindepth 1 -maxdepth 1 -name '.*' 2>/dev/null | wc -l"""
# An existing file is replaced by a new one written beside it.
_WRITABLE_SCRIPT = """p={path}; d=$(dirname -- "$p")
mkdir -p -- "$d" || exit 1
if [ -e "$p" ]; then
[ -f "$p" ] && [ -w "$p" ] || {{ echo "it is no file that can be written"; exit 1; }}
p=$d/.probe$$
fi
: >"$p" && rm -f -- "$p\""""


class RefusedError(Exception):
    """The edit was refused; the message is shown to the agent."""


class FolderError(Exception):
    """The path is a folder."""


@dataclass
class Files:
    """Files of one sandbox. Bytes and line ends that are not edited stay unchanged."""

    sandbox: Sandbox
    timeout_s: float
    _undo_contents: dict[str, list[bytes | None]] = field(default_factory=lambda: defaultdict(list))
    """Path -> contents before its last edits, the newest last; None where there was no file."""
    _real: dict[str, str] = field(default_factory=dict)
    _encodings: dict[str, str] = field(default_factory=dict)

    def read(self, path: str) -> str:
        """Return a file's text. Raises FolderError for a folder, RefusedError if it cannot be opened."""
        result = self.sandbox.exec(
            _READ_SCRIPT.format(path=shlex.quote(path)),
            timeout_s=self.timeout_s,
            cwd="/",
            max_output_bytes=MAX_BYTES + (1 << 16),  # the path comes first
        )
        if result.exit_code == 42:
            raise FolderError(path)
        if result.exit_code in _REFUSED:
            raise RefusedError(_REFUSED[result.exit_code].format(path=path))
        if result.exit_code != 0:
            error_text = "it took too long" if result.timed_out else result.stderr.decode("utf-8", "replace").strip()
            raise RefusedError(f"{path} cannot be read: {error_text}")
        name, _, data = result.stdout.partition(b"\0")
        self._real[path] = name.decode("utf-8", "surrogateescape")
        text, self._encodings[path] = decode(data)
        return text

    def exists(self, path: str) -> bool:
        """Return whether a file, folder or link of that name exists."""
        script = f'p={shlex.quote(path)}; [ -e "$p" ] || [ -L "$p" ]'
        return self.sandbox.exec(script, timeout_s=self.timeout_s, cwd="/").exit_code == 0

    def write(self, path: str, text: str, *, before: str | None) -> None:
        """Write a text and remember the previous one (None: no file). Links are followed."""
        encoding = "utf-8" if before is None else self._encodings[path]
        try:
            data = text.encode(encoding, "surrogateescape")
        except UnicodeEncodeError as error:
            if encoding != "latin-1":
                raise RefusedError("The text holds half of a surrogate pair and cannot be written.") from None
            lacking = text[error.start : error.end]
            raise RefusedError(
                f"{path} is written in latin-1, which has no {lacking!r}: write it in another way, for instance as an "
                "escape sequence."
            ) from None
        if before is None:
            self._real.pop(path, None)  # a link of that name no longer exists
        self._write_file(path, data)
        old = None if before is None else before.encode(encoding)
        remembered = [*self._undo_contents[path], old][-MAX_UNDOS:]
        while sum(len(content or b"") for content in remembered) > REMEMBERED_BYTES:
            remembered.pop(0)
        self._undo_contents[path] = remembered

    def undo(self, path: str) -> str | None:
        """Undo the last edit. Return the restored text, None if the file was new and is removed."""
        if not self._undo_contents[path]:
            raise RefusedError(f"No edit history found for {path}: nothing was edited there.")
        data = self._undo_contents[path][-1]
        text = None
        if data is None:
            result = self.sandbox.exec(f"rm -f -- {shlex.quote(path)}", timeout_s=self.timeout_s, cwd="/")
            if result.exit_code != 0:
                raise RefusedError(f"{path} cannot be removed: {result.stderr.decode('utf-8', 'replace').strip()}")
        else:
            self._write_file(path, data)
            text, _ = decode(data)
        self._undo_contents[path].pop()
        return text

    def list_folder(self, path: str) -> tuple[list[str], int]:
        """Return a folder's sorted content, two levels deep, folders with a slash; and the number of hidden items."""
        script = _LIST_SCRIPT.format(path=shlex.quote(path))
        result = self.sandbox.exec(script, timeout_s=self.timeout_s, cwd="/", max_output_bytes=2 << 20)
        names, _, hidden = result.stdout.rpartition(b"\0")
        if result.exit_code != 0:
            raise RefusedError(f"{path} cannot be listed: {result.stderr.decode('utf-8', 'replace').strip()}")
        # Without the leading ./
        lines = sorted(line[2:] for line in names.decode("utf-8", "surrogateescape").splitlines())
        return lines, int(hidden)

    def _write_file(self, path: str, data: bytes) -> None:
        """Write bytes. Raises RefusedError if the path is not writable, InfraError if the machine failed."""
        try:
            self.sandbox.write(self._real.get(path, path), data)
        except (OSError, InfraError) as error:
            # The machine is not at fault if the path itself is not writable.
            check = self.sandbox.exec(
                _WRITABLE_SCRIPT.format(path=shlex.quote(path)), timeout_s=self.timeout_s, cwd="/", merge=True
            )
            if isinstance(error, InfraError) and (check.exit_code == 0 or check.timed_out):
                raise
            output = check.stdout.decode("utf-8", "replace").strip()
            raise RefusedError(f"{path} cannot be written: {output or error}") from error
