"""A watch over a sandbox's disk use: no limit that unprivileged users can set bounds a folder."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

LOOK_S = 0.5
MEASURE_S = 30.0
"""Seconds between measurements; growth of the file system by what the sandbox may still take triggers one, too."""
INODE = 4096
"""Bytes counted for each file besides its content: a file system has a limited number of inodes."""


class DiskWatch:
    """Calls ``on_full`` once, in a thread of its own, when ``folder`` takes more than ``limit_bytes``."""

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
        began = at = _used(self.folder)
        measured, since = 0, 0.0
        while not self._end.wait(LOOK_S):
            since += LOOK_S
            now = _used(self.folder)
            if measured + now - at <= self.limit_bytes and since < MEASURE_S:
                continue
            size, whole = measure(self.folder)
            # If part cannot be read, the growth of the file system counts instead.
            measured, at, since = size if whole else max(size, now - began), now, 0.0
            if measured > self.limit_bytes:
                self.full = True
                self._on_full()
                return


def measure(folder: Path) -> tuple[int, bool]:
    """Return (bytes that a folder takes, whether all of it was readable). du(1) has no limits of depth or path."""
    total, whole = 0, True
    for words, unit in ((["du", "-skx"], 1024), (["du", "--inodes", "-sx"], INODE)):
        process = subprocess.run([*words, str(folder)], capture_output=True, check=False)
        with suppress(ValueError, IndexError):
            total += int(process.stdout.split()[0]) * unit
        whole = whole and process.returncode == 0
    return total, whole


def _used(folder: Path) -> int:
    try:
        about = os.statvfs(folder)
    except OSError:
        return 0
    return (about.f_blocks - about.f_bfree) * about.f_frsize + (about.f_files - about.f_ffree) * INODE
