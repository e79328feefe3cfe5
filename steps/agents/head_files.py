"""Files of the repository as its HEAD has them, by few commands however many they are."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from swe_argo.steps.families.swebench.retrieval import is_readme
from swe_argo.steps.sandbox.protocol import ExecResult, Sandbox
from swe_argo.steps.sandbox.script_failure import script_failure

_TIMEOUT_S = 300.0
_MOST = 16 << 20
"""Bytes, of all files together."""


def readme_names(box: Sandbox) -> list[str]:
    """The names of the READMEs in the repository's own folder. Raises InfraError, ResourceError."""
    listed = _git(box, "git ls-tree -z HEAD").stdout.split(b"\0")
    entries = [entry.partition(b"\t") for entry in listed if entry]
    names = [name.decode("utf-8", "surrogateescape") for kind, _, name in entries if b" blob " in kind]
    return [name for name in names if is_readme(name)]


def read(box: Sandbox, paths: Sequence[str]) -> dict[str, str]:
    """Path -> text, as Python's ``open`` reads it (every line ends in \\n), undecodable bytes replaced.

    Links are followed inside the repository; what is no file of HEAD is not in it. Raises InfraError, ResourceError.
    """
    readable_paths = [path for path in paths if "\n" not in path]
    if not readable_paths:
        return {}
    names = " ".join(shlex.quote(f"HEAD:{path}") for path in readable_paths)
    data = _git(box, f"printf '%s\\n' {names} | git cat-file --batch --follow-symlinks").stdout
    texts = {}
    for path in readable_paths:
        kind, body, data = _answer(data)
        if kind == "blob":
            texts[path] = body.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return texts


def _answer(data: bytes) -> tuple[str, bytes, bytes]:
    """One answer of ``git cat-file --batch``: ``<name> <kind> <size>``, or ``<kind> <size>`` of a link that leads out;
    then as many bytes and a line feed. Or ``<asked for> missing``, alone."""
    line, _, rest = data.partition(b"\n")
    if not line or line.endswith((b" missing", b" ambiguous")):
        return "", b"", rest
    words = line.decode("ascii", "replace").split(" ")
    size = int(words[-1])
    if len(rest) < size:  # more than is fetched: nothing that a prompt could hold
        return "", b"", b""
    return words[-2], rest[:size], rest[size + 1 :]


def _git(box: Sandbox, command: str) -> ExecResult:
    result = box.exec(f"set -o pipefail; {command}", timeout_s=_TIMEOUT_S, max_output_bytes=_MOST)
    if result.exit_code != 0:
        raise script_failure("reading files of HEAD", result)
    return result
