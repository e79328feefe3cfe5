"""The locks that make installs: the base lock for a run, the whole lock on top of it for other targets."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT

FILES = ("Makefile", "pyproject.toml", "base.lock", "requirements.lock")
BASE, FULL, LINK = "-r base.lock", "-r requirements.lock", "--editable ."
LINKED = ".linked-4294967295"
"""Stamp of a checkout whose packages have no files."""

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="needs make")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in FILES:
        shutil.copyfile(ROOT / name, tmp_path / name)
        os.utime(tmp_path / name, (1, 1))
    return tmp_path


def planned(checkout: Path, *words: str) -> str:
    """Return the commands that make would run."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--dry-run", "--directory", str(checkout), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def set_up(checkout: Path, *stamps: str) -> None:
    (checkout / ".venv").mkdir()
    for time, name in enumerate(stamps, 2):
        (checkout / ".venv" / name).touch()
        os.utime(checkout / ".venv" / name, (time, time))


@pytest.mark.parametrize("target", ["run", "wheel"])
def test_make_installs_base_lock(checkout: Path, target: str) -> None:
    commands = planned(checkout, target)
    assert BASE in commands
    assert FULL not in commands


@pytest.mark.parametrize("target", ["test", "templates"])
def test_make_adds_whole_lock(checkout: Path, target: str) -> None:
    commands = planned(checkout, target)
    assert commands.index(BASE) < commands.index(f"what make {target} needs") < commands.index(FULL)


def test_make_test_extends_environment(checkout: Path) -> None:
    set_up(checkout, ".ready")
    commands = planned(checkout, "test")
    assert "-m venv" not in commands
    assert FULL in commands


@pytest.mark.parametrize("target", ["run", "test"])
def test_make_keeps_full_environment(checkout: Path, target: str) -> None:
    set_up(checkout, ".ready", LINKED, ".full")
    commands = planned(checkout, target)
    assert "-m venv" not in commands
    assert "install" not in commands


def test_make_links_new_files(checkout: Path) -> None:
    set_up(checkout, ".ready", LINKED, ".full")
    (checkout / "steps").mkdir()
    (checkout / "steps" / "new.py").touch()
    commands = planned(checkout, "run")
    assert LINK in commands
    assert BASE not in commands
    assert FULL not in commands


@pytest.mark.parametrize(("tool", "command"), [("uv", "uv pip install"), ("", "-m pip")])
def test_make_prefers_uv(checkout: Path, tool: str, command: str) -> None:
    lines = planned(checkout, "run", f"UV={tool}").splitlines()
    (install,) = [line for line in lines if BASE in line]
    assert command in install
    assert "-m pip" in install
