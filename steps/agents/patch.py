"""Extraction of an agent's patch: the diff of its working tree against the original HEAD."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from swe_argo.steps.errors import ResourceError
from swe_argo.steps.sandbox.protocol import ExecResult, Sandbox
from swe_argo.steps.sandbox.script_failure import script_failure
from swe_argo.steps.sandbox.untrusted import SandboxBroken

TIMEOUT_S = 900.0
MAX_BYTES = 256 << 20
"""Largest patch; graders could not apply a larger one."""
LARGE_BYTES = MAX_BYTES
"""Largest file in a patch; larger files are left out."""
_LIMITS = {"LARGE_KIB": str(LARGE_BYTES >> 10)}
_SCRIPT = Path(__file__).resolve().with_name("take_patch.sh")


@dataclass(frozen=True)
class Start:
    """Start state of a repository, before the agent works.

    ``root`` is its folder, ``tree`` HEAD's tree with the files of submodules in place, ``dirty`` the entries in which
    the working tree already differed, in the format of ``git diff-index --raw``: path -> modes, names and status.
    """

    root: str
    tree: str
    dirty: dict[bytes, bytes]


@dataclass(frozen=True)
class ExtractedPatch:
    """A patch, with a note if it is empty for another reason than a lack of changes."""

    data: bytes
    note: str = ""


def record_start(sandbox: Sandbox, head: str) -> Start:
    """Return ``head``'s tree and the differences from it before an agent works. Raises InfraError, ResourceError."""
    result = sandbox.exec(
        _SCRIPT.read_text(),
        timeout_s=TIMEOUT_S,
        env=_LIMITS | {"WHAT": "begin", "HEAD": head},
        max_output_bytes=MAX_BYTES,
    )
    if result.exit_code != 0:
        raise script_failure("remembering the state of the repository", result)
    root, tree, raw = result.stdout.split(b"\0", 2)
    return Start(root=root.decode(), tree=tree.decode(), dirty=_entries(raw))


def extract(sandbox: Sandbox, start: Start) -> ExtractedPatch:
    """Return the diff of the working tree against the HEAD of ``start``, wherever HEAD is now.

    It applies with ``git apply``. New files are included. Ignored files are not, unless force-added or committed.
    Differences from before the agent's work that it left unchanged are omitted: the grader's sandbox has them, too.
    Nested repositories and submodules are included by their files. Files above LARGE_BYTES are omitted, with a note.
    The patch is empty, with a note, if the agent made it impossible (deleted HEAD's objects and their copy, removed
    git, filled the disk, changed more than MAX_BYTES). The sandbox is one in which the agent has worked
    (``as_untrusted``). Raises InfraError if its backend reports it lost.
    """
    try:
        return _extract(sandbox, start)
    except (SandboxBroken, ResourceError) as error:
        return ExtractedPatch(b"", f"no patch can be taken: {error.reason}")
    except OSError as error:
        return ExtractedPatch(b"", f"no patch can be taken: {error}")


def _extract(sandbox: Sandbox, start: Start) -> ExtractedPatch:
    env = _LIMITS | {"ROOT": start.root, "TREE": start.tree}
    script = _SCRIPT.read_text()
    result = sandbox.exec(script, timeout_s=TIMEOUT_S, cwd="/", env=env | {"WHAT": "look"}, max_output_bytes=MAX_BYTES)
    if result.exit_code != 0 or result.truncated:
        return ExtractedPatch(b"", _why(result))
    side, _, raw = result.stdout.partition(b"\0")
    now, last_line = _entries(raw), _last_line(result)
    note = last_line if last_line.startswith("left out, ") else ""
    if now == start.dirty:
        return ExtractedPatch(b"", note)
    undo = b"".join(_undo(path, entry) for path, entry in now.items() if start.dirty.get(path) == entry)
    undo_file = f"/var/tmp/swe-argo-undo-{secrets.token_hex(8)}" if undo else ""  # noqa: S108 - path in the sandbox
    if undo:
        sandbox.write(undo_file, undo)
    env |= {"WHAT": "diff", "SIDE": side.decode("ascii", "replace"), "UNDO": undo_file}
    patch = sandbox.exec(script, timeout_s=TIMEOUT_S, cwd="/", env=env, max_output_bytes=MAX_BYTES)
    if patch.exit_code != 0:
        return ExtractedPatch(b"", _why(patch))
    if patch.truncated:
        return ExtractedPatch(b"", f"the patch is larger than {MAX_BYTES >> 20} MiB")
    return ExtractedPatch(patch.stdout, note)


def _entries(raw: bytes) -> dict[bytes, bytes]:
    """Parse repeated ``:modes names status NUL path NUL``."""
    fields = raw.split(b"\0")
    return dict(zip(fields[1::2], fields[0:-1:2], strict=False))


def _undo(path: bytes, entry: bytes) -> bytes:
    """Return the line of ``git update-index --index-info`` that resets the path to HEAD; mode 0 removes it."""
    mode, _, name = entry.removeprefix(b":").split(b" ")[:3]
    return (b"0 " if mode == b"000000" else mode + b" ") + name + b"\t" + path + b"\0"


def _why(result: ExecResult) -> str:
    """Return the reason for a missing patch."""
    if result.timed_out:
        return f"no patch can be taken within {TIMEOUT_S:.0f} s"
    if result.truncated:
        return "there are too many changes to list"
    return _last_line(result) or f"no patch can be taken: exit code {result.exit_code}"


def _last_line(result: ExecResult) -> str:
    lines = result.stderr[-4000:].decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:300] if lines else ""
