"""The file format of a layer: ``layer.tgz`` with deleted paths, replaced paths and the changed files themselves.

``deleted`` and ``replaced`` are absolute paths, each ended by NUL: paths that are gone or of another kind than before,
and the changed files that existed before. ``files/<path>`` are the files: folders, then the rest, links last, so that
nothing is written through a link. A machine's output is untrusted: ``members`` reads it within limits, and it is
written anew.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any, Self

MAX_BYTES = 256 << 20
"""The limit of an archive."""
MAX_CONTENT = 512 << 20
"""The limit of an archive's unpacked content."""
DELETED, REPLACED, FILES = "deleted", "replaced", "files/"
_NAME_BYTES = 64 << 10
_LONG_NAMES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE)
_DEVICES = (tarfile.CHRTYPE, tarfile.BLKTYPE)
BROKEN = (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, OverflowError)
"""Errors of reading an archive that somebody manipulated."""


class _Header(tarfile.TarInfo):
    """A header of the kinds that GNU's and busybox' tar write; others may stand for anything of any size."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.InvalidHeaderError as error:  # type: ignore[attr-defined]
            # The archive ends here: only zeros are skipped.
            raise tarfile.EmptyHeaderError(str(error)) from None  # type: ignore[attr-defined]
        if header.type in _LONG_NAMES and header.size <= _NAME_BYTES:
            return header
        if header.type not in (*_PLAIN, *_DEVICES) or header.size < 0:
            raise ValueError(f"a member of type {header.type!r} and {header.size} bytes")
        return header


class _Bounded:
    """A reader of a stream with a byte limit."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream, self._left = stream, most

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise ValueError("more than an archive of changed files may hold")
        return data


Member = tuple[tarfile.TarInfo, IO[bytes] | None]
"""A member and its content, to be read before the next member is requested; None for a member without content."""


def members(data: bytes) -> Iterator[Member]:
    """Yield the members of a tar, or of several in a row, packed by gzip or not.

    Yields files, links, folders and pipes with valid paths, in order. Skips devices, and names that lead out of the
    tree. Raises one of BROKEN.
    """
    packed: Any = io.BytesIO(data)
    stream: Any = gzip.GzipFile(fileobj=packed) if data[:2] == b"\x1f\x8b" else packed
    bounded = _Bounded(stream, MAX_CONTENT + (64 << 20))
    with tarfile.open(  # type: ignore[call-overload]
        fileobj=bounded, mode="r|", tarinfo=_Header, ignore_zeros=True, errors="surrogateescape"
    ) as tar:
        while (member := tar.next()) is not None:
            tar.members.clear()  # else all members stay in memory
            member.name = member.name.removeprefix("./").strip("/")
            if member.type in _DEVICES or not is_inside(member.name):
                continue
            if member.islnk():
                member.linkname = member.linkname.removeprefix("./").strip("/")
            yield member, tar.extractfile(member) if member.isreg() else None


def is_inside(name: str) -> bool:
    """Return whether a relative name stays in its tree."""
    return not {"", ".", ".."} & set(name.split("/")) and "\0" not in name


class TooLargeError(ValueError):
    """An archive is larger than MAX_BYTES."""


@dataclass
class LayerWriter:
    """A writer of an archive; the same content gives the same bytes."""

    buffer: io.BytesIO = field(default_factory=io.BytesIO)
    _links: list[tarfile.TarInfo] = field(default_factory=list)
    _written: set[str] = field(default_factory=set)
    _prefix: str = FILES

    @classmethod
    @contextmanager
    def opened(cls, prefix: str = FILES) -> Iterator[LayerWriter]:
        """Yield a writer; ``data`` is complete when the block has ended. Raises TooLargeError."""
        writer = cls(_prefix=prefix)
        with (
            gzip.GzipFile(fileobj=writer.buffer, mode="wb", mtime=0, compresslevel=3) as packed,
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.GNU_FORMAT, errors="surrogateescape") as writer._tar,
        ):
            yield writer
            for link in sorted(writer._links, key=lambda each: each.name):
                writer._tar.addfile(link)
        writer._check()

    _tar: Any = None

    @property
    def data(self) -> bytes:
        """The archive."""
        return self.buffer.getvalue()

    def add_list(self, name: str, paths: Iterable[bytes]) -> None:
        """Add one of the two lists."""
        content = b"".join(path + b"\0" for path in sorted(paths))
        member = tarfile.TarInfo(name)
        member.size = len(content)
        self._tar.addfile(member, io.BytesIO(content))

    def add(self, member: tarfile.TarInfo, content: IO[bytes] | None) -> None:
        """Add a member by its relative name. A second name of a file that is not in the archive is left out."""
        clean = tarfile.TarInfo(self._prefix + member.name)
        clean.type = tarfile.REGTYPE if member.isreg() else member.type
        clean.mode, clean.uid, clean.gid = member.mode & 0o7777, member.uid, member.gid
        clean.mtime = max(0, int(member.mtime))
        if member.issym():
            clean.linkname = member.linkname
            self._links.append(clean)
            return
        if member.islnk():
            if member.linkname not in self._written:
                return
            clean.linkname = self._prefix + member.linkname
        if member.isreg():
            clean.size = member.size
            self._written.add(member.name)
        self._tar.addfile(clean, content)
        self._tar.members.clear()
        self._check()

    def _check(self) -> None:
        if self.buffer.tell() > MAX_BYTES:
            raise TooLargeError(f"the changed files are more than {MAX_BYTES >> 20} MiB, packed")


@dataclass(frozen=True)
class LayerContent:
    """The content of a layer, by absolute paths: ``changed`` -> the current kind of file (tarfile's type)."""

    deleted: list[bytes]
    replaced: set[bytes]
    changed: dict[bytes, bytes]


def read_content(layer: bytes, each: Callable[[tarfile.TarInfo, IO[bytes] | None], None] | None = None) -> LayerContent:
    """Read a layer; ``each`` receives its files one by one, by their relative names. Raises one of BROKEN."""
    lists: dict[str, list[bytes]] = {DELETED: [], REPLACED: []}
    changed: dict[bytes, bytes] = {}
    for member, content in members(layer):
        if member.name in lists and content is not None:
            paths = content.read().split(b"\0")
            lists[member.name] = [path for path in paths if _is_path(path)]
        elif member.name.startswith(FILES):
            member.name = member.name.removeprefix(FILES)
            if member.islnk():
                member.linkname = member.linkname.removeprefix(FILES)
            changed[b"/" + member.name.encode(errors="surrogateescape")] = member.type
            if each is not None:
                each(member, content)
    return LayerContent(lists[DELETED], set(lists[REPLACED]), changed)


def _is_path(path: bytes) -> bool:
    return path.startswith(b"/") and is_inside(path[1:].decode(errors="surrogateescape"))
