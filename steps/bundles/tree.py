"""Digest and archive of a folder's files: the same files always give the same bytes."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, cast

_CHUNK_BYTES = 1 << 20
"""Bytes read at a time."""


def digest_tree(root: Path) -> str:
    """Return ``sha256:HEX`` of all paths, kinds, contents and executable bits, without owners and times.

    Raises OSError for an unreadable file, ValueError for anything but files, folders and links.
    """
    whole = hashlib.sha256()
    for path in _entries(root):
        kind, content = _describe_entry(path)
        name = path.relative_to(root).as_posix()
        whole.update(f"{kind}\0{name}\0{content}\0".encode("utf-8", "surrogateescape"))
    return f"sha256:{whole.hexdigest()}"


def write_tar(
    root: Path, out: io.RawIOBase | IO[bytes], prefix: str = "", programs: Mapping[str, bytes] = MappingProxyType({})
) -> None:
    """Write the tree as a tar, owned by root. ``prefix`` is added to its paths.

    ``programs``: path -> content of executable files to add, without that prefix. Raises what ``digest_tree`` raises.
    """
    with tarfile.open(fileobj=cast("IO[bytes]", out), mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for name, data in programs.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o755
            archive.addfile(member, io.BytesIO(data))
        for path in _entries(root):
            member = tarfile.TarInfo(f"{prefix}{path.relative_to(root).as_posix()}")
            kind, content = _describe_entry(path, with_content=False)
            member.mode = 0o755 if kind in "dx" else 0o777 if kind == "l" else 0o644
            match kind:
                case "d":
                    member.type = tarfile.DIRTYPE
                    archive.addfile(member)
                case "l":
                    member.type, member.linkname = tarfile.SYMTYPE, content
                    archive.addfile(member)
                case _:
                    member.size = path.stat().st_size
                    with path.open("rb") as file:
                        archive.addfile(member, file)


def _entries(root: Path) -> Iterator[Path]:
    """Yield all entries below a folder sorted by name, each folder before its content."""
    for entry in sorted(os.scandir(root), key=lambda item: item.name):
        path = Path(entry.path)
        yield path
        if entry.is_dir(follow_symlinks=False):
            yield from _entries(path)


def _describe_entry(path: Path, *, with_content: bool = True) -> tuple[str, str]:
    """Return the kind (folder d, link l, file f, executable x), and the content's digest or the link's target."""
    mode = path.lstat().st_mode
    if stat.S_ISDIR(mode):
        return "d", ""
    if stat.S_ISLNK(mode):
        return "l", os.readlink(path)  # noqa: PTH115 - as written
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} is neither a file nor a folder nor a link")
    kind = "x" if mode & stat.S_IXUSR else "f"
    if not with_content:
        return kind, ""
    content = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_CHUNK_BYTES):
            content.update(piece)
    return kind, content.hexdigest()
