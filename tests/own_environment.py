"""Virtual environments outside of the checkout, for libraries that ``.venv`` must not contain."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.paths import ROOT

INSTALL_TIMEOUT_S = 3600


class NotInstalledError(Exception):
    """A library cannot be installed on this machine; the message says why in one line."""


def make_environment(folder: Path, requirements: Path, *, name: str, timeout_s: float) -> Path:
    """Create an environment in ``folder`` with the packages of a file, without their dependencies; return its python.

    The output of pip goes to stderr. ``timeout_s`` applies to creation and installation, each. Raises
    NotInstalledError, which names ``name``.
    """
    python = folder / "bin" / "python"
    _call([sys.executable, "-m", "venv", "--clear", str(folder)], name, timeout_s)
    _call([str(python), "-m", "pip", "install", "--no-deps", "-r", str(requirements)], name, timeout_s)
    return python


def install_library(name: str, requirements: Path, *, size: str) -> Path:
    """Return the python of an environment in the user's cache that has a library; install it once per set of versions.

    ``size`` is printed before an installation. The project's code comes from the checkout (PYTHONPATH); only its
    version is installed. Raises NotInstalledError.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    fingerprint = "\0".join([requirements.read_text(), sys.version])
    home = cache / "swe-argo" / name / hashlib.sha256(fingerprint.encode()).hexdigest()[:16]
    home.mkdir(parents=True, exist_ok=True)
    python, marker = home / "venv" / "bin" / "python", home / "installed"
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not marker.exists():
            sys.stderr.write(f"{name} comes into {home}, once: {size}\n")
            make_environment(home / "venv", requirements, name=name, timeout_s=INSTALL_TIMEOUT_S)
            marker.touch()
        _describe_project(python)
    return python


def _describe_project(python: Path) -> None:
    version = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
    [packages] = python.parents[1].glob("lib/python3*/site-packages")
    folder = packages / f"swe_argo-{version}.dist-info"
    for path in packages.glob("swe_argo-*.dist-info"):
        if path != folder:
            shutil.rmtree(path)
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: swe-argo\nVersion: {version}\n")


def _call(words: list[str], title: str, timeout_s: float) -> None:
    try:
        result = subprocess.run(
            words, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False, timeout=timeout_s
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalledError(f"{title} cannot be installed: {error}") from None
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or ["pip says nothing"]
        raise NotInstalledError(f"{title} cannot be installed: {lines[-1]}")
