"""A base image from this machine's own package mirror: debootstrap, no registry."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from swe_argo.steps.settings import settings

PYTHON = "python3,python3-venv,ca-certificates"
"""What an image of Python alone has."""
PACKAGES = f"{PYTHON},python3-pytest,git,patch"
RECIPE = "1"
"""Part of the archive's name: other content needs another number."""

_LEFT_OUT = ["dev/*", "proc/*", "sys/*", "var/cache/apt/*", "var/lib/apt/lists/*"]
_LEFT_OUT += [f"usr/share/{name}/*" for name in ("doc", "man", "locale", "info")]


class NoDebianError(Exception):
    """There is no base image; the message says why."""


def cache_path(name: str) -> Path:
    """Return the path of an expensive artifact that is kept between test runs, outside the repository."""
    folder = settings().home_folder / "tests"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name


def root_archive(packages: str = PACKAGES) -> Path:
    """Return a tar archive of a minimal Debian with these packages.

    It is made once, in about a minute, from the release and mirror of apt on this machine. Raises NoDebianError.
    """
    mirror, release = _mirror()
    key = hashlib.sha256(f"{RECIPE} {release} {packages}".encode()).hexdigest()[:12]
    archive = cache_path(f"debian-{release}-{key}.tar")
    with cache_path("debian.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(archive, mirror, release, packages)
    return archive


def _mirror() -> tuple[str, str]:
    """Return address and code name of the first package index of apt."""
    apt_get = shutil.which("apt-get")
    if apt_get is None:
        raise NoDebianError("this machine has no apt, whose mirror debootstrap would use")
    command = [apt_get, "indextargets", "--format", "$(SITE) $(CODENAME)", "Created-By: Packages", "Component: main"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    for line in lines:
        mirror, _, release = line.partition(" ")
        if release and "-" not in release:  # not the updates: their index is not whole
            return mirror, release
    raise NoDebianError("apt knows no package index here: apt-get update")


def _make(archive: Path, mirror: str, release: str, packages: str) -> None:
    debootstrap = shutil.which("debootstrap", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if debootstrap is None:
        raise NoDebianError("debootstrap is not installed")
    if os.getuid() != 0:
        raise NoDebianError("only root can run debootstrap")
    with tempfile.TemporaryDirectory(prefix=".debian-", dir=archive.parent) as scratch:
        root, new = Path(scratch) / "root", Path(scratch) / "new.tar"
        command = [debootstrap, "--variant=minbase", f"--include={packages}", release, str(root), mirror]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            lines = [line for line in (result.stdout + result.stderr).splitlines() if line.strip()]
            raise NoDebianError(f"debootstrap {release} from {mirror} failed: {' | '.join(lines[-2:])}")
        subprocess.run(
            ["tar", "-C", str(root), *(f"--exclude=./{name}" for name in _LEFT_OUT), "-cf", str(new), "."], check=True
        )
        new.rename(archive)
