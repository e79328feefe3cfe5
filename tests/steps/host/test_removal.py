"""Removal of whatever foreign code leaves in a folder, and the report of what cannot be removed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from swe_argo.steps.host.removal import BATCH, remove
from tests.paths import ROOT

LONG = "n" * 255


@contextmanager
def opened(path: Path) -> Iterator[int]:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield folder
    finally:
        os.close(folder)


def nest(folder: Path, depth: int, name: str) -> None:
    """Make ``depth`` folders, each in the one before, and a file in every hundredth."""
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for number in range(depth):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = inner
        if number % 100 == 0:
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def close_all(folder: Path) -> None:
    for path in (folder / "a" / "b" / "c", folder / "a" / "d"):
        path.mkdir(parents=True)
        (path / "file").touch()
    for name in ("a/b/c/file", "a/b/c", "a/b", "a/d", "a"):
        (folder / name).chmod(0)
    folder.chmod(0)


def strange(folder: Path) -> None:
    os.mkfifo(folder / "fifo")
    with socket.socket(socket.AF_UNIX) as listener, opened(folder) as here:
        listener.bind(f"/proc/self/fd/{here}/socket")
    (folder / "loop").symlink_to("loop")
    (folder / "-rf *\n\x1b[31m").mkdir()
    with opened(folder) as here:
        os.mkdir(b"\xff\xfe", dir_fd=here)
    (folder / ".removed-0").mkdir()
    (folder / ".removed-0" / "file").touch()


def wide(folder: Path) -> None:
    for number in range(2 * BATCH + 1):
        (folder / str(number)).touch()


@pytest.mark.parametrize(
    "fill",
    [
        pytest.param(lambda folder: nest(folder, 1_300, "d"), id="deeper than Python recurses"),
        pytest.param(lambda folder: nest(folder, 100_000, "d"), id="100,000 deep", marks=pytest.mark.long),
        pytest.param(lambda folder: nest(folder, 100, LONG), id="names of 255 bytes, past PATH_MAX"),
        pytest.param(close_all, id="no permission"),
        pytest.param(strange, id="FIFO, socket, loop of links, odd names"),
        pytest.param(wide, id="more files than are listed at a time"),
    ],
)
def test_remove_deletes_any_folder(fill: Callable[[Path], None]) -> None:
    memory = "/dev/shm"  # a disk takes minutes for the deepest: its journal
    folder = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
    fill(folder)
    assert remove(folder) is None
    assert not os.path.lexists(folder)
    assert remove(folder) is None, "idempotent"


def as_somebody(*command: str, then: str) -> str:
    """Return what ``then``, a line of Python, prints in a process that ``command`` makes; skip where it cannot."""
    if not shutil.which(command[0]) or subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"{command[0]} does not work here")
    code = f"from pathlib import Path; from tests.steps.host.test_removal import *; {then}"
    words = [*command, sys.executable, "-c", code]
    result = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_remove_needs_no_privilege(tmp_path: Path) -> None:
    """Root may enter any closed folder; everybody else must open it first."""
    if os.geteuid():
        pytest.skip("needs root, to become somebody else")
    shared = Path(tempfile.mkdtemp())
    os.chown(shared, 65534, 65534)
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    try:
        then = f"folder = Path('{shared}/folder'); folder.mkdir(); close_all(folder); print(remove(folder))"
        assert as_somebody(*nobody, then=then) == "None"
        assert not (shared / "folder").exists()
    finally:
        remove(shared)


def test_remove_follows_no_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    (outside / "file").touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    assert remove(folder) is None
    assert (outside / "file").exists()
    assert outside.stat().st_mode & 0o777 == 0o500
    (tmp_path / "alias").symlink_to(outside)
    assert remove(tmp_path / "alias") is not None
    assert (outside / "file").exists()


def test_remove_reports_mounts(tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    (folder / "a" / "mounted").mkdir(parents=True)
    (folder / "a" / "other").touch()
    outside.mkdir()
    (outside / "precious").touch()
    mounting = f"subprocess.run(['mount', '--bind', '{outside}', '{folder}/a/mounted'], check=True)"
    then = f"{mounting}; print(remove(Path('{folder}')))"
    words = as_somebody("unshare", "--user", "--map-root-user", "--mount", then=then)
    assert words == "1 left in it, 'mounted': Device or resource busy"
    assert (outside / "precious").exists()
    assert remove(folder) is None, "outside that namespace nothing is mounted there"


@contextmanager
def immutable(file: Path) -> Iterator[None]:
    """Make a file that nobody can remove meanwhile; skip where that is impossible."""
    file.touch()
    chattr = shutil.which("chattr")
    if not chattr or subprocess.run([chattr, "+i", file], check=False, capture_output=True).returncode:
        pytest.skip("files cannot be made immutable here")
    with opened(file.parent) as folder:
        try:
            yield
        finally:  # wherever the folder was moved
            subprocess.run([chattr, "-i", file.name], cwd=Path(f"/proc/self/fd/{folder}").readlink(), check=True)


def test_remove_reports_immutable_file(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "other").touch()
    with immutable(folder / "a" / "kept"):
        assert remove(folder) == "1 left in it, 'kept': Operation not permitted"
        assert [path.name for path in folder.rglob("*") if path.is_file()] == ["kept"]
    assert remove(folder) is None
