"""Where verl is installed for its tests: a virtual environment of its own, outside of the checkout."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tomllib
from pathlib import Path

from tests.own_environment import NotInstalledError, make_environment

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
INSTALL_TIMEOUT_S = 3600


def verl_home() -> Path:
    """A folder in the user's cache, another one for each set of versions."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    wanted = "\0".join([REQUIREMENTS.read_text(), sys.version])
    return cache / "swe-argo" / "verl" / hashlib.sha256(wanted.encode()).hexdigest()[:16]


def install_verl(home: Path) -> Path:
    """Its python. Nothing is done where it is there already, else 3 GB are downloaded, which unpacked are 7.

    Raises NotInstalledError where the packages cannot be had.
    """
    if sys.version_info >= (3, 13):
        raise NotInstalledError("verl 0.9.1 needs Python 3.11 or 3.12: make setup PYTHON=python3.12")
    home.mkdir(parents=True, exist_ok=True)
    python, done = home / "venv" / "bin" / "python", home / "installed"
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            sys.stderr.write(f"verl and torch come into {home}, once: 3 GB are downloaded, which unpacked are 7\n")
            make_environment(home / "venv", REQUIREMENTS, what="verl", timeout_s=INSTALL_TIMEOUT_S)
            done.touch()
        _describe_project(python)
    return python


def _describe_project(python: Path) -> None:
    """The project's own code is that of the checkout (PYTHONPATH), whichever it is: only its version is installed."""
    version = str(tomllib.loads(PYPROJECT.read_text())["project"]["version"])
    [packages] = python.parents[1].glob("lib/python3*/site-packages")
    folder = packages / f"swe_argo-{version}.dist-info"
    for each in packages.glob("swe_argo-*.dist-info"):
        if each != folder:
            shutil.rmtree(each)
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: swe-argo\nVersion: {version}\n")


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{install_verl(verl_home())}\n")
    except NotInstalledError as reason:
        sys.exit(str(reason))
