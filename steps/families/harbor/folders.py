"""Folders of a task as text in a row: packed the same from the same files, and bounded."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path

MAX_BYTES = 64 << 20
"""Of all files of one folder."""
_IGNORED = {".git", "__pycache__", ".DS_Store", ".harborignore"}


class TaskFolderError(ValueError):
    """A folder that is no part of a task, in a few words."""


def list_folder(folder: Path) -> dict[str, Path]:
    """Relative name -> file, of all below a folder; none where it is not there.

    Links are followed, where they stay in the task. Raises TaskFolderError, also for more than MAX_BYTES.
    """
    root, total, files = folder.parent.resolve(), 0, dict[str, Path]()
    for place, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(set(folders) - _IGNORED)
        for name in folders:
            if Path(place, name).is_symlink():
                raise TaskFolderError(f"{name} is a link to a folder")
        for name in sorted(set(names) - _IGNORED):
            path = Path(place, name)
            if not path.resolve().is_relative_to(root) or not path.is_file():
                raise TaskFolderError(f"{name} is no file of the task")
            total += path.stat().st_size
            if total > MAX_BYTES:
                raise TaskFolderError(f"has more than {MAX_BYTES >> 20} MiB")
            files[path.relative_to(folder).as_posix()] = path
    return files


def pack(files: dict[str, Path]) -> str:
    """Files as a tar in base64, modes among them. Empty where there are none."""
    if not files:
        return ""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, path in sorted(files.items()):
            member = tarfile.TarInfo(name)
            data = path.read_bytes()
            member.size, member.mode = len(data), 0o755 if path.stat().st_mode & 0o100 else 0o644
            tar.addfile(member, io.BytesIO(data))
    return base64.b64encode(target.getvalue()).decode()


def unpack(packed: str) -> bytes:
    """The tar."""
    return base64.b64decode(packed)


def read_files(packed: str) -> dict[str, bytes]:
    """Return the files of a packed folder by their names."""
    if not packed:
        return {}
    with tarfile.open(fileobj=io.BytesIO(unpack(packed))) as tar:
        return {member.name: file.read() for member in tar if (file := tar.extractfile(member)) is not None}


def replace_files(packed: str, contents: Mapping[str, bytes]) -> str:
    """Return a packed folder with other contents of some of its files, all else the same."""
    target = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(unpack(packed))) as source,
        tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for member in source:
            file = source.extractfile(member)
            data = contents.get(member.name, file.read() if file else b"")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return base64.b64encode(target.getvalue()).decode()


def digest(files: dict[str, Path]) -> str:
    """sha256 in hex over names and contents; modes do not come along everywhere."""
    total = hashlib.sha256()
    for name, path in sorted(files.items()):
        data = path.read_bytes()
        total.update(f"{name}\0{len(data)}\0".encode() + data)
    return total.hexdigest()
