"""Reader of the repository's files at HEAD, with few commands for any number of files."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from swe_argo.steps.families.swebench.retrieval import is_readme
from swe_argo.steps.sandbox.protocol import ExecResult, Sandbox
from swe_argo.steps.sandbox.script_failure import script_failure

_TIMEOUT_S = 300.0
_MAX_BYTES = 16 << 20
"""Limit in bytes for all files together."""


def readme_names(box: Sandbox) -> list[str]:
    """Return the names of READMEs in the repository's root.

    Raises ResourceError if git runs out of disk or memory, InfraError if it fails otherwise.
    """
    entries_output = _git(box, "git ls-tree -z HEAD").stdout.split(b"\0")
    entries = [entry.partition(b"\t") for entry in entries_output if entry]
    names = [name.decode("utf-8", "surrogateescape") for kind, _, name in entries if b" blob " in kind]
    return [name for name in names if is_readme(name)]


def read(box: Sandbox, paths: Sequence[str]) -> dict[str, str]:
    """Return path -> text, read with universal newlines, undecodable bytes replaced.

    Links are followed inside the repository; paths without a file at HEAD are omitted. Raises as ``readme_names``.
    """
    readable_paths = [path for path in paths if "\n" not in path]
    if not readable_paths:
        return {}
    names = " ".join(shlex.quote(f"HEAD:{path}") for path in readable_paths)
    data = _git(box, f"printf '%s\\n' {names} | git cat-file --batch --follow-symlinks").stdout
    texts = {}
    for path in readable_paths:
        kind, body, data = _parse_answer(data)
        if kind == "blob":
            texts[path] = body.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return texts


def _parse_answer(data: bytes) -> tuple[str, bytes, bytes]:
    """Return kind, content and rest of ``git cat-file --batch``'s first answer.

    Its header is ``<name> <kind> <size>``, or ``<kind> <size>`` for a link out, then content and a line feed; or
    ``<name> missing`` alone.
    """
    line, _, rest = data.partition(b"\n")
    if not line or line.endswith((b" missing", b" ambiguous")):
        return "", b"", rest
    words = line.decode("ascii", "replace").split(" ")
    size = int(words[-1])
    if len(rest) < size:  # cut off at the limit: too large for any prompt
        return "", b"", b""
    return words[-2], rest[:size], rest[size + 1 :]


def _git(box: Sandbox, command: str) -> ExecResult:
    """Run a command with git in the repository. Raises ResourceError or InfraError, see ``script_failure``."""
    result = box.exec(f"set -o pipefail; {command}", timeout_s=_TIMEOUT_S, max_output_bytes=_MAX_BYTES)
    if result.exit_code != 0:
        raise script_failure("reading files of HEAD", result)
    return result
