"""What an agent leaves: the difference between its working tree and the HEAD it was given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from steps.agents.history import failed
from steps.sandbox.protocol import ExecResult, Sandbox

TIMEOUT_S = 900.0
MAX_BYTES = 256 << 20
"""A larger patch is nothing that a grader could apply."""
_NOTHING_TO_TAKE = 66
_UNDO = "/var/tmp/swe-argo-undo"  # noqa: S108 - of the sandbox
_SCRIPT = Path(__file__).with_name("take_patch.sh")


@dataclass(frozen=True)
class Start:
    """The repository as an agent finds it.

    ``root`` is its folder, ``tree`` that of HEAD, ``dirty`` the entries in which the working tree differed from HEAD
    already, as ``git diff-index --raw`` gives them: path -> modes, names and status.
    """

    root: str
    tree: str
    dirty: dict[bytes, bytes]


@dataclass(frozen=True)
class Taken:
    """A patch, and why it is empty where that is not for want of changes."""

    data: bytes
    note: str = ""


def begin(sandbox: Sandbox, head: str) -> Start:
    """Remember ``head``'s tree and what differs from it before an agent begins. Raises InfraError, ResourceError."""
    result = sandbox.exec(
        _SCRIPT.read_text(), timeout_s=TIMEOUT_S, env={"WHAT": "begin", "HEAD": head}, max_output_bytes=MAX_BYTES
    )
    if result.exit_code != 0:
        raise failed("remembering the state of the repository", result)
    root, tree, raw = result.stdout.split(b"\0", 2)
    return Start(root=root.decode(), tree=tree.decode(), dirty=_entries(raw))


def extract(sandbox: Sandbox, start: Start) -> Taken:
    """The diff of the working tree against the HEAD of ``start``, whatever HEAD is now. It applies with ``git apply``.

    New files are in it, ignored ones are not, unless they were added by force or committed. What differed from HEAD
    before the agent began, and is as it was, is not the agent's and is left out: the grader's sandbox has it too.
    Repositories made inside the tree count by their files; changes inside submodules cannot be expressed and are left
    out. A patch that cannot be taken because of what the agent did (HEAD's objects and their copy deleted, git removed,
    more than MAX_BYTES) is empty, with a note. Raises InfraError, ResourceError.
    """
    env = {"ROOT": start.root, "TREE": start.tree}
    script = _SCRIPT.read_text()
    found = sandbox.exec(script, timeout_s=TIMEOUT_S, cwd="/", env=env | {"WHAT": "look"}, max_output_bytes=MAX_BYTES)
    if found.exit_code == _NOTHING_TO_TAKE:
        return Taken(b"", _last_line(found))
    if found.exit_code != 0:
        raise failed("looking for changes", found)
    now = _entries(found.stdout)
    if now == start.dirty:
        return Taken(b"")
    undo = b"".join(_undo(path, entry) for path, entry in now.items() if start.dirty.get(path) == entry)
    if undo:
        sandbox.write(_UNDO, undo)
    patch = sandbox.exec(
        script,
        timeout_s=TIMEOUT_S,
        cwd="/",
        env=env | {"WHAT": "diff", "UNDO": _UNDO if undo else ""},
        max_output_bytes=MAX_BYTES,
    )
    if patch.exit_code != 0:
        raise failed("taking the patch", patch)
    if patch.truncated:
        return Taken(b"", f"the patch is larger than {MAX_BYTES >> 20} MiB")
    return Taken(patch.stdout)


def _entries(raw: bytes) -> dict[bytes, bytes]:
    """``:modes names status NUL path NUL``, again and again."""
    fields = raw.split(b"\0")
    return dict(zip(fields[1::2], fields[0:-1:2], strict=True))


def _undo(path: bytes, entry: bytes) -> bytes:
    """The line of ``git update-index --index-info`` that gives the path what HEAD has; mode 0 removes it."""
    mode, _, name = entry.removeprefix(b":").split(b" ")[:3]
    return (b"0 " if mode == b"000000" else mode + b" ") + name + b"\t" + path + b"\0"


def _last_line(result: ExecResult) -> str:
    lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "nothing could be taken"
