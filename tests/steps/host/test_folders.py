"""What a killed process leaves behind, and how it is found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from swe_argo.steps.host.folders import clean, find_orphans, private_folder
from swe_argo.steps.host.removal import remove
from swe_argo.steps.sandbox.local import bubblewrap

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
    """Any run that begins beside these tests removes the orphans it finds."""
    own = tmp_path / "tmp"
    own.mkdir()
    monkeypatch.setenv("TMPDIR", str(own))
    monkeypatch.setattr(tempfile, "tempdir", str(own))


def running(root: str, mark: str) -> list[str]:
    """Processes of a sandbox: in its namespaces, where their words have the mark, or marked with its folder."""
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
            if mark.encode() in line or root.encode() in line + (process / "environ").read_bytes():
                commands.append(line.decode())
        except OSError:
            continue
    return commands


@pytest.mark.parametrize("isolated", [True, False])
def test_killed_owner_orphans_its_folder(tmp_path: Path, isolated: bool) -> None:
    if isolated and bubblewrap.probe():
        pytest.skip(str(bubblewrap.probe()))
    if not Path("/proc/self/stat").exists():
        pytest.skip("needs Linux")
    (tmp_path / "img" / "testbed").mkdir(parents=True)
    mark = f"7654.{time.monotonic_ns()}"  # no other test sleeps as long, of whichever worker or run of the tests
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(isolated), str(tmp_path), mark],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    with owner:
        assert owner.stdout is not None
        root = owner.stdout.readline().decode().strip()
        assert len(running(root, mark)) >= 3
        assert Path(root) not in find_orphans()
        owner.send_signal(signal.SIGKILL)
    while running(root, mark):
        time.sleep(0.02)
    assert Path(root) in find_orphans()
    assert clean([Path(root)]) == {}
    assert not Path(root).exists()
    assert Path(root) not in find_orphans()


def test_living_folder_is_no_orphan() -> None:
    folder = private_folder()
    try:
        assert str(os.getpid()) in folder.name
        assert folder not in find_orphans()
        reused = folder.rename(folder.with_name(folder.name.replace(f"-{os.getpid()}-", f"-{os.getpid()}-1")))
        assert reused in find_orphans(), "its pid lives, but is another process's by now"
        folder = reused
    finally:
        remove(folder)


def test_foreign_folder_is_no_orphan(tmp_path: Path) -> None:
    folder = private_folder()
    foreign = folder.rename(folder.with_name(f"swe-argo-1-{os.getpid()}-1-x"))
    try:
        assert foreign not in find_orphans(), "made in another pid namespace"
    finally:
        remove(foreign)


def test_zombie_folder_is_orphan() -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("needs Linux")
    code = "from swe_argo.steps.host.folders import private_folder; print(private_folder())"
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=Path(__file__).parents[3])
    assert owner.stdout is not None
    folder = Path(owner.stdout.read().decode().strip())
    os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
    is_orphan = folder in find_orphans()
    owner.communicate()
    remove(folder)
    assert is_orphan
