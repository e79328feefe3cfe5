"""A watch over a sandbox's disk use, since unprivileged users cannot limit a folder's size."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

LOOK_S = 0.5
"""Seconds between looks at the file system's used space, which is cheap to read."""
MEASURE_S = 30.0
"""Maximum seconds between measurements; enough growth of the file system triggers one earlier."""
INODE = 4096
"""Bytes counted per file besides its content, since the number of inodes is limited."""


class DiskWatch:
    """A thread that calls ``on_full`` once when ``folder`` exceeds ``limit_bytes``; then ``full`` is true."""

    def __init__(self, folder: Path, limit_bytes: int, on_full: Callable[[], None]) -> None:
        self.folder, self.limit_bytes, self._on_full = folder, limit_bytes, on_full
        self.full = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="disk", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the watch."""
        self._end.set()

    def _watch(self) -> None:
        """Measure the folder when it may have reached the limit, by the growth of the file system, or is due."""
        began = at = _used(self.folder)  # used bytes of the file system: at first, and at the last measurement
        measured, since = 0, 0.0  # the folder's size then, and the seconds since
        while not self._end.wait(LOOK_S):
            since += LOOK_S
            now = _used(self.folder)
            if measured + now - at <= self.limit_bytes and since < MEASURE_S:
                continue
            size, whole = measure(self.folder)
            # If a part is unreadable, the growth of the file system counts instead.
            measured, at, since = size if whole else max(size, now - began), now, 0.0
            if measured > self.limit_bytes:
                self.full = True
                self._on_full()
                return


def measure(folder: Path) -> tuple[int, bool]:
    """Return a folder's size in bytes, and whether all of it was readable. du(1) has no depth or path limits."""
    total, whole = 0, True
    for words, unit in ((["du", "-skx"], 1024), (["du", "--inodes", "-sx"], INODE)):
        process = subprocess.run([*words, str(folder)], capture_output=True, check=False)
        with suppress(ValueError, IndexError):
            total += int(process.stdout.split()[0]) * unit
        whole = whole and process.returncode == 0
    return total, whole


def _used(folder: Path) -> int:
    """Return the used bytes of the folder's file system, with INODE bytes per file; 0 if unknown."""
    try:
        about = os.statvfs(folder)
    except OSError:
        return 0
    return (about.f_blocks - about.f_bfree) * about.f_frsize + (about.f_files - about.f_ffree) * INODE
