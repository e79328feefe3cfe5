"""What an agent leaves: the difference between its working tree and the HEAD it was given."""

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
"""A larger patch is nothing that a grader could apply."""
LARGE_BYTES = MAX_BYTES
"""A larger file is left out of it."""
_LIMITS = {"LARGE_KIB": str(LARGE_BYTES >> 10)}
_SCRIPT = Path(__file__).resolve().with_name("take_patch.sh")


@dataclass(frozen=True)
class Start:
    """The repository as an agent finds it.

    ``root`` is its folder, ``tree`` that of HEAD with the files of its submodules in their place, ``dirty`` the entries
    in which the working tree differed from it already, as ``git diff-index --raw`` gives them: path -> modes, names and
    status.
    """

    root: str
    tree: str
    dirty: dict[bytes, bytes]


@dataclass(frozen=True)
class ExtractedPatch:
    """A patch, and why it is empty where that is not for want of changes."""

    data: bytes
    note: str = ""


def record_start(sandbox: Sandbox, head: str) -> Start:
    """Remember ``head``'s tree and what differs from it before an agent begins. Raises InfraError, ResourceError."""
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
    """The diff of the working tree against the HEAD of ``start``, whatever HEAD is now. It applies with ``git apply``.

    New files are in it, ignored ones are not, unless they were added by force or committed. What differed from HEAD
    before the agent began, and is as it was, is not the agent's and is left out: the grader's sandbox has it too.
    Repositories inside the tree count by their files, submodules too. Files of more than LARGE_BYTES are left out, with
    a note. A patch that cannot be taken because of what the agent
    did (HEAD's objects and their copy deleted, git removed, the disk filled, more than MAX_BYTES) is empty, with a
    note. The sandbox is one in which the agent has worked (``as_untrusted``). Raises InfraError where what is
    outside of it says that it is lost.
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
    undo_file = f"/var/tmp/swe-argo-undo-{secrets.token_hex(8)}" if undo else ""  # noqa: S108 - of the sandbox
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
    """``:modes names status NUL path NUL``, again and again."""
    fields = raw.split(b"\0")
    return dict(zip(fields[1::2], fields[0:-1:2], strict=False))


def _undo(path: bytes, entry: bytes) -> bytes:
    """The line of ``git update-index --index-info`` that gives the path what HEAD has; mode 0 removes it."""
    mode, _, name = entry.removeprefix(b":").split(b" ")[:3]
    return (b"0 " if mode == b"000000" else mode + b" ") + name + b"\t" + path + b"\0"


def _why(result: ExecResult) -> str:
    """Why there is no patch."""
    if result.timed_out:
        return f"no patch can be taken within {TIMEOUT_S:.0f} s"
    if result.truncated:
        return "there are too many changes to list"
    return _last_line(result) or f"no patch can be taken: exit code {result.exit_code}"


def _last_line(result: ExecResult) -> str:
    lines = result.stderr[-4000:].decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:300] if lines else ""
