"""Removal of a folder tree made by untrusted code, however deep, wide, long-named or unreadable."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections import deque
from contextlib import suppress
from itertools import count, islice
from pathlib import Path

BATCH = 10_000
"""Maximum directory entries held in memory at a time."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(folder: Path) -> str | None:
    """Remove a folder tree; return None, or the remainder and the reason in a few words. Raises no OSError."""
    here = os.open(folder.parent, FOLDER)
    try:
        root = _open(folder.name, here)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _words(folder.name, error)
    finally:
        os.close(here)
    try:
        tree = _Tree(root)
        tree.empty()
    finally:
        os.close(root)
    with suppress(OSError):
        folder.rmdir()
        return None
    return f"{tree.remaining} left in it, {tree.reason}" if tree.reason else "something was made in it meanwhile"


class _Tree:
    """Empties the folder behind a descriptor.

    Every folder below is moved up to the root, under a short name, before it is emptied in its turn: nothing recurses,
    no path grows long, two descriptors are open at a time, and an entry that cannot be moved, such as a mount point, is
    never entered.
    """

    def __init__(self, root: int) -> None:
        self.root = root
        self.remaining = 0
        self.reason = ""
        self._mark = f".removed-{secrets.token_hex(8)}-"
        self._numbers = count()
        self._waiting: deque[str] = deque()

    def empty(self) -> None:
        self._empty(self.root)
        while self._waiting:
            name = self._waiting.popleft()
            remaining = self.remaining
            try:
                folder = _open(name, self.root)
                try:
                    self._empty(folder)
                finally:
                    os.close(folder)
                if self.remaining == remaining:
                    os.rmdir(name, dir_fd=self.root)
            except OSError as error:
                self._keep(name, error)

    def _empty(self, folder: int) -> None:
        stays: set[str] = set()
        while True:
            with os.scandir(folder) as entries:
                others = (entry for entry in entries if entry.name not in stays and self._mark not in entry.name)
                batch = list(islice(others, BATCH))
            if not batch:
                return
            for entry in batch:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        self._lift(entry.name, folder)
                    else:
                        os.unlink(entry.name, dir_fd=folder)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    stays.add(entry.name)
                    self._keep(entry.name, error)

    def _lift(self, name: str, folder: int) -> None:
        try:
            os.rmdir(name, dir_fd=folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            return
        place = f"{self._mark}{next(self._numbers)}"
        try:
            os.rename(name, place, src_dir_fd=folder, dst_dir_fd=self.root)
        except PermissionError:  # a folder that is moved must itself be writable: its .. changes
            _admit(name, folder)
            os.rename(name, place, src_dir_fd=folder, dst_dir_fd=self.root)
        self._waiting.append(place)

    def _keep(self, name: str, error: OSError) -> None:
        self.remaining += 1
        self.reason = self.reason or _words(name, error)


def _open(name: str, parent: int) -> int:
    """Open a folder and make it readable and writable for its owner; return the descriptor."""
    try:
        folder = os.open(name, FOLDER, dir_fd=parent)
    except PermissionError:
        _admit(name, parent)
        folder = os.open(name, FOLDER, dir_fd=parent)
    if os.fstat(folder).st_mode & stat.S_IRWXU != stat.S_IRWXU:
        with suppress(OSError):
            os.fchmod(folder, stat.S_IRWXU)
    return folder


def _admit(name: str, parent: int) -> None:
    """Give the owner all rights to a folder, never following a link of its name."""
    if not hasattr(os, "O_PATH"):  # not Linux
        os.chmod(name, stat.S_IRWXU, dir_fd=parent)
        return
    place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        Path(f"/proc/self/fd/{place}").chmod(stat.S_IRWXU)
    finally:
        os.close(place)


def _words(name: str, error: OSError) -> str:
    return f"{name!r}: {error.strerror}"
