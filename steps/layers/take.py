"""Taking of a layer: every file of an agent's machine that has changed."""

from __future__ import annotations

import heapq
import secrets
import tarfile
from collections import Counter
from dataclasses import dataclass

from swe_argo.steps.contracts.layer import LayerSummary
from swe_argo.steps.errors import ResourceError
from swe_argo.steps.layers import archive
from swe_argo.steps.layers.archive import BROKEN, MAX_CONTENT, LayerWriter, is_inside
from swe_argo.steps.layers.listing import OURS, TIMEOUT_S, ListedFile, Listing, is_whole, list_files
from swe_argo.steps.sandbox.protocol import ExecResult, Sandbox
from swe_argo.steps.sandbox.untrusted import SandboxBroken

_PACK = """export LC_ALL=C
if tar --null -T /dev/null -cf /dev/null 2>/dev/null
then tar --format=gnu --no-recursion --null -T "$NAMES" -cf -
else xargs -0 tar -cf - <"$NAMES"
fi | gzip -1
rm -f "$NAMES" """
"""Some tars of busybox do not read names from a file: with many names they write several archives in a row, and two
names of one file in different archives become two files."""
_CACHE = b"/__pycache__/"
"""Files that Python makes from the sources, and may trust unchecked: they are no part of a submission."""
MAX_CHANGES = 400_000
"""The most changed files and folders of one layer: each is kept in memory."""
SHOWN = 200
"""The most changes that a summary names."""
NOTHING = "nothing can be taken from the machine"


@dataclass(frozen=True)
class TakenLayer:
    """An archive, empty if nothing changed, and a note if it is empty or incomplete for another reason."""

    data: bytes
    note: str = ""
    summary: LayerSummary | None = None
    """The summary of the layer; None if it is empty."""


@dataclass(frozen=True)
class _Changes:
    """Changes of a machine: ``files`` to be packed, by path; ``folders`` that are new or have another mode or owner."""

    files: dict[bytes, ListedFile]
    folders: list[ListedFile]
    deleted: list[bytes]
    replaced: list[bytes]
    left_out: list[bytes]

    @property
    def any(self) -> bool:
        """Whether there is anything to submit."""
        return bool(self.files or self.folders or self.deleted)


def take(box: Sandbox, before: Listing) -> TakenLayer:
    """Return the differences of a machine from ``before``: content, kind, mode and owner, without mounts.

    An agent has worked in the machine (``as_untrusted``). If its actions prevent the taking (tools replaced, disk
    filled, more than MAX_CONTENT bytes or MAX_CHANGES files), the loss is the agent's: the layer is empty, with a note.
    Sockets and devices are left out, and so are files larger than the limit of all files. Raises InfraError if a source
    outside the machine reports that it is lost.
    """
    try:
        return _take(box, before)
    except (SandboxBroken, ResourceError) as error:
        return TakenLayer(b"", f"{NOTHING}: {error.reason}")
    except BROKEN as error:
        return TakenLayer(b"", f"{NOTHING}: {' '.join(str(error).split())[:300] or type(error).__name__}")


def _take(box: Sandbox, before: Listing) -> TakenLayer:
    listed = list_files(box, before.mounts)
    if not is_whole(listed):
        return TakenLayer(b"", f"{NOTHING}: {_why(listed)}")
    changes = _compare(before, Listing.of(listed.stdout, before.mounts))
    if not changes.any:
        return TakenLayer(b"", _left_out(changes))
    size = sum(file.size for file in changes.files.values() if file.kind == "f")
    if size > MAX_CONTENT:
        return TakenLayer(b"", f"the changed files are {size >> 20} MiB, more than {MAX_CONTENT >> 20}")
    packed, note = b"", ""
    if changes.files:
        result = _pack(box, changes)
        packed, note = result.stdout, _first_line(result)
        if result.truncated:
            return TakenLayer(b"", f"the changed files are more than {archive.MAX_BYTES >> 20} MiB, packed")
        if not packed:
            return TakenLayer(b"", f"{NOTHING}: {_why(result)}")
    data, sizes = _write(changes, packed)
    unread = len(changes.files) - len(sizes)
    notes = (_left_out(changes), f"{unread} changed files could not be read" if unread else "", note)
    return TakenLayer(data, "; ".join(filter(None, notes)), _summarize(changes, sizes))


def _compare(before: Listing, now: Listing) -> _Changes:
    old = {file.path: (file.facts, file.kind) for file in before.files()}
    changes, mounts, folders = _Changes({}, [], [], [], []), {OURS, *before.mounts}, {b""}
    for file in now.files():
        # A replaced find may list files behind a link or on another file system, under a wrong name.
        if file.path in mounts or file.path.rpartition(b"/")[0] not in folders:
            continue
        if file.kind == "d":
            folders.add(file.path)
        facts, kind = old.pop(file.path, (b"", ""))
        if facts == file.facts or not is_inside(_name(file.path)) or _CACHE in file.path + b"/":
            continue
        if len(changes.files) + len(changes.folders) + len(changes.left_out) >= MAX_CHANGES:
            raise ValueError(f"more than {MAX_CHANGES} files changed")
        if file.kind == "d":
            changes.folders.append(file)
        elif file.kind in ("f", "l", "p") and file.size <= MAX_CONTENT:
            changes.files[file.path] = file
        else:
            changes.left_out.append(file.path)
            continue
        if facts:
            changes.replaced.append(file.path)
        if kind not in ("", file.kind):
            changes.deleted.append(file.path)
    last = b"\0"
    for path in sorted(old):
        # The content of a deleted folder went with it.
        if not path.startswith(last) and is_inside(_name(path)):
            changes.deleted.append(path)
            last = path + b"/"
    return changes


def _pack(box: Sandbox, changes: _Changes) -> ExecResult:
    names = f"/var/tmp/swe-argo-{secrets.token_hex(8)}"  # noqa: S108 - of the sandbox
    box.write(names, b"".join(b"." + path + b"\0" for path in sorted(changes.files)))
    return box.exec(_PACK, timeout_s=TIMEOUT_S, cwd="/", env={"NAMES": names}, max_output_bytes=archive.MAX_BYTES)


def _write(changes: _Changes, packed: bytes) -> tuple[bytes, dict[bytes, int]]:
    """Return the layer, and the sizes of the files that the machine packed, by their paths."""
    with LayerWriter.opened() as writer:
        writer.add_list(archive.DELETED, changes.deleted)
        writer.add_list(archive.REPLACED, changes.replaced)
        for folder in sorted(changes.folders):
            member = tarfile.TarInfo(_name(folder.path))
            member.type, member.mode = tarfile.DIRTYPE, folder.mode
            member.uid, member.gid, member.mtime = folder.uid, folder.gid, int(folder.mtime)
            writer.add(member, None)
        sizes: dict[bytes, int] = {}
        for found, content in archive.members(packed) if packed else ():
            path = _path(found.name)
            if found.isdir() or path in sizes or path not in changes.files:
                continue
            sizes[path] = changes.files[path].size if found.islnk() else found.size
            writer.add(found, content)
    return writer.data, sizes


def _summarize(changes: _Changes, sizes: dict[bytes, int]) -> LayerSummary:
    replaced, there = set(changes.replaced), {**dict.fromkeys((folder.path for folder in changes.folders), 0), **sizes}
    kinds = {path: "changed" if path in replaced else "new" for path in there}
    kinds |= {path: "deleted" for path in changes.deleted if path not in there}
    counts = Counter(kinds.values())
    first = [
        {"path": path.decode(errors="surrogateescape"), "change": kinds[path], "size": there.get(path, 0)}
        for path in heapq.nsmallest(SHOWN, kinds)
    ]
    return LayerSummary.model_validate(
        {"new": counts["new"], "changed": counts["changed"], "deleted": counts["deleted"], "first": first}
    )


def _name(path: bytes) -> str:
    return path[1:].decode(errors="surrogateescape")


def _path(name: str) -> bytes:
    return b"/" + name.encode(errors="surrogateescape")


def _left_out(changes: _Changes) -> str:
    if not changes.left_out:
        return ""
    return f"left out, as no file or too large: {changes.left_out[0].decode(errors='replace')[:200]}"


def _why(result: ExecResult) -> str:
    if result.timed_out:
        return f"it took more than {TIMEOUT_S:.0f} s"
    if result.truncated:
        return "there are too many files to list"
    return _first_line(result) or f"exit code {result.exit_code}"


def _first_line(result: ExecResult) -> str:
    lines = result.stderr[:4000].decode("utf-8", "replace").strip().splitlines()
    return lines[0][:300] if lines else ""
