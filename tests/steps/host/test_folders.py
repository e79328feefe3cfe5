"""Folders that a killed process leaves behind, and how they are found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from swe_argo.steps.host.folders import find_orphans, private_folder, remove_with_processes
from swe_argo.steps.host.removal import remove
from swe_argo.steps.sandbox.local import bubblewrap
from tests.paths import ROOT

needs_linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux")
OWNER = """
import sys, time
from pathlib import Path
from swe_argo.steps.sandbox.local.backend import LocalBackend
from swe_argo.steps.sandbox.protocol import SandboxRequest
backend = LocalBackend(Path(sys.argv[2]), isolated=sys.argv[1] == "True")
box = backend.create(SandboxRequest("n", "img", 100, network=True))
sleep = f"sleep {sys.argv[3]}"
box.exec(f"setsid -f {sleep}; {sleep} & true", timeout_s=60)
print(box.root, flush=True)
box.exec(sleep, timeout_s=90)
"""


@pytest.fixture(autouse=True)
def _temporary_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Any run that begins beside these tests removes the orphans it finds.
    own = tmp_path / "tmp"
    own.mkdir()
    monkeypatch.setenv("TMPDIR", str(own))
    monkeypatch.setattr(tempfile, "tempdir", str(own))


def running(root: str, mark: str) -> list[str]:
    """Return the processes of a sandbox: their words have the mark, or their environment its folder."""
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
            if mark.encode() in line or root.encode() in line + (process / "environ").read_bytes():
                commands.append(line.decode())
        except OSError:
            continue
    return commands


@needs_linux
@pytest.mark.parametrize("isolated", [True, False])
def test_killed_owner_orphans_its_folder(tmp_path: Path, isolated: bool) -> None:
    if isolated and bubblewrap.probe():
        pytest.skip(str(bubblewrap.probe()))
    (tmp_path / "img" / "testbed").mkdir(parents=True)
    mark = f"7654.{time.monotonic_ns()}"  # no other test sleeps as long, of whichever worker or run of the tests
    command = [sys.executable, "-c", OWNER, str(isolated), str(tmp_path), mark]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as owner:
        assert owner.stdout is not None
        root = owner.stdout.readline().decode().strip()
        assert len(running(root, mark)) >= 3
        assert Path(root) not in find_orphans()
        owner.send_signal(signal.SIGKILL)
    while running(root, mark):
        time.sleep(0.02)
    assert Path(root) in find_orphans()
    assert remove_with_processes([Path(root)]) == {}
    assert not Path(root).exists()
    assert Path(root) not in find_orphans()


def test_orphans_are_of_dead_owners_only() -> None:
    folder, pid = private_folder(), os.getpid()
    try:
        assert folder not in find_orphans()
        folder = folder.rename(folder.with_name(folder.name.replace(f"-{pid}-", f"-{pid}-1")))
        assert folder in find_orphans(), "its pid lives, but is another process's by now"
        folder = folder.rename(folder.with_name(f"swe-argo-1-{pid}-1-x"))
        assert folder not in find_orphans(), "made in another pid namespace"
    finally:
        remove(folder)


@needs_linux
def test_zombie_folder_is_orphan() -> None:
    code = "from swe_argo.steps.host.folders import private_folder; print(private_folder())"
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    assert owner.stdout is not None
    folder = Path(owner.stdout.read().decode().strip())
    os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
    is_orphan = folder in find_orphans()
    owner.communicate()
    remove(folder)
    assert is_orphan
