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

    ``root`` is its folder, ``tree`` HEAD's tree with the files of submodules in place, ``changed_before`` the entries
    in which the working tree already differed, in the format of ``git diff-index --raw``: path -> modes, names and
    status.
    """

    root: str
    tree: str
    changed_before: dict[bytes, bytes]


@dataclass(frozen=True)
class ExtractedPatch:
    """A patch. ``note`` is the reason if it is empty although files may have changed, or names omitted files."""

    data: bytes
    note: str = ""


def record_start(sandbox: Sandbox, head: str) -> Start:
    """Return ``head``'s tree and the differences from it before an agent works.

    Raises ResourceError if the machine runs out of disk or memory, InfraError if it fails otherwise.
    """
    result = sandbox.exec(
        _SCRIPT.read_text(),
        timeout_s=TIMEOUT_S,
        env=_LIMITS | {"PHASE": "begin", "HEAD": head},
        max_output_bytes=MAX_BYTES,
    )
    if result.exit_code != 0:
        raise script_failure("recording the state of the repository", result)
    root, tree, raw = result.stdout.split(b"\0", 2)
    return Start(root=root.decode(), tree=tree.decode(), changed_before=_entries(raw))


def extract(sandbox: Sandbox, start: Start) -> ExtractedPatch:
    """Return the diff of the working tree against the HEAD of ``start``, wherever HEAD is now.

    It applies with ``git apply``. New files are included. Ignored files are not, unless force-added or committed.
    Earlier differences that the agent did not change are omitted, because the grader's sandbox has them, too.
    Nested repositories and submodules are included by their files. Files above LARGE_BYTES are omitted, with a note.
    The patch is empty, with a note, if the agent made it impossible (deleted HEAD's objects and their copy, removed
    git, filled the disk, changed more than MAX_BYTES). ``sandbox`` must be wrapped by ``as_untrusted``. Raises
    InfraError if its backend reports it lost.
    """
    try:
        return _extract(sandbox, start)
    except (SandboxBroken, ResourceError) as error:
        return ExtractedPatch(b"", f"the patch cannot be extracted: {error.reason}")
    except OSError as error:
        return ExtractedPatch(b"", f"the patch cannot be extracted: {error}")


def _extract(sandbox: Sandbox, start: Start) -> ExtractedPatch:
    """Return the patch: list all differences, then take the diff without those that the agent did not make."""
    env = _LIMITS | {"ROOT": start.root, "TREE": start.tree}
    script = _SCRIPT.read_text()
    result = sandbox.exec(script, timeout_s=TIMEOUT_S, cwd="/", env=env | {"PHASE": "look"}, max_output_bytes=MAX_BYTES)
    if result.exit_code != 0 or result.truncated:
        return ExtractedPatch(b"", _failure_reason(result))
    # ``git_dir`` is the name of the script's git directory, which the second call uses again.
    git_dir, _, raw = result.stdout.partition(b"\0")
    changes, last_line = _entries(raw), _last_line(result)
    note = last_line if last_line.startswith("left out, ") else ""
    if changes == start.changed_before:
        return ExtractedPatch(b"", note)
    # Differences that existed before are reset to HEAD in the script's own index, so the diff omits them.
    undo = b"".join(
        _reset_line(path, entry) for path, entry in changes.items() if start.changed_before.get(path) == entry
    )
    undo_file = f"/var/tmp/swe-argo-undo-{secrets.token_hex(8)}" if undo else ""  # noqa: S108 - path in the sandbox
    if undo:
        sandbox.write(undo_file, undo)
    env |= {"PHASE": "diff", "SIDE": git_dir.decode("ascii", "replace"), "UNDO": undo_file}
    patch = sandbox.exec(script, timeout_s=TIMEOUT_S, cwd="/", env=env, max_output_bytes=MAX_BYTES)
    if patch.exit_code != 0:
        return ExtractedPatch(b"", _failure_reason(patch))
    if patch.truncated:
        return ExtractedPatch(b"", f"the patch is larger than {MAX_BYTES >> 20} MiB")
    return ExtractedPatch(patch.stdout, note)


def _entries(raw: bytes) -> dict[bytes, bytes]:
    """Return path -> entry of ``git diff-index --raw -z``: repeated ``:modes names status NUL path NUL``."""
    fields = raw.split(b"\0")
    return dict(zip(fields[1::2], fields[0:-1:2], strict=False))


def _reset_line(path: bytes, entry: bytes) -> bytes:
    """Return the line of ``git update-index --index-info`` that resets the path to HEAD; mode 0 removes it."""
    mode, _, name = entry.removeprefix(b":").split(b" ")[:3]
    return (b"0 " if mode == b"000000" else mode + b" ") + name + b"\t" + path + b"\0"


def _failure_reason(result: ExecResult) -> str:
    """Return the reason for a missing patch: a timeout, too much output, or the script's last message."""
    if result.timed_out:
        return f"the patch cannot be extracted within {TIMEOUT_S:.0f} s"
    if result.truncated:
        return "the list of changes is too long"
    return _last_line(result) or f"the patch cannot be extracted: exit code {result.exit_code}"


def _last_line(result: ExecResult) -> str:
    """Return the last line of stderr, up to 300 characters."""
    lines = result.stderr[-4000:].decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:300] if lines else ""
