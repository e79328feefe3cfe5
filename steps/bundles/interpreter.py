"""A CPython that requires only glibc 2.17 of an image: python-build-standalone's, from a Go module.

https://github.com/kluctl/go-embed-python; Go's checksum database verifies the module's content.
"""

from __future__ import annotations

import gzip
import json
import platform
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from swe_argo.steps.bundles.tools import go, run_tool
from swe_argo.steps.contracts.recipe import Architecture
from swe_argo.steps.errors import ConfigError

MODULE = "github.com/kluctl/go-embed-python"
VERSIONS: Mapping[str, str] = MappingProxyType(
    {"3.11": "v0.0.0-3.11.11-20241219-1", "3.14": "v0.0.0-3.14.6-20260610-1"}
)
"""Python version -> version of the module that contains it."""
_SYMLINK = 1 << 27
"""Go's fs.ModeSymlink."""
_FOLDER = 1 << 31
"""Go's fs.ModeDir."""
_UNUSED = ("test", "idlelib", "tkinter", "turtledemo", "ensurepip")
"""Folders of the standard library that bundles leave out."""


def install_interpreter(python: str, architecture: Architecture, target: Path, scratch: Path) -> str:
    """Unpack the interpreter for Linux into ``target``. Return its full version.

    Raises ConfigError if Go is missing or the module does not exist, InfraError if it cannot be downloaded.
    """
    return _unpack(_module(python, scratch) / f"linux-{architecture}", target)


def interpreter_here(python: str, scratch: Path) -> Path:
    """Unpack the interpreter for this machine. Return the path of its program.

    Raises ConfigError if there is none for this system, else what ``install_interpreter`` raises.
    """
    architecture = "arm64" if platform.machine().lower() in ("arm64", "aarch64") else "amd64"
    source = _module(python, scratch) / f"{sys.platform}-{architecture}"
    if not source.is_dir():
        raise ConfigError(f"agents from PyPI cannot be built on {sys.platform}: build on Linux or macOS", field="agent")
    target = scratch / "python-here"
    _unpack(source, target)
    return target / "bin" / f"python{python}"


def _module(python: str, scratch: Path) -> Path:
    """Download the module. Return its folder with one interpreter per system and architecture."""
    words = [*go(), "mod", "download", "-json", f"{MODULE}@{VERSIONS[python]}"]
    answer = json.loads(run_tool(words, f"{MODULE} {VERSIONS[python]}", cwd=scratch, env={"GOFLAGS": "-mod=mod"}))
    return Path(answer["Dir"]) / "python" / "internal" / "data"


def _unpack(source: Path, target: Path) -> str:
    """Unpack an interpreter, whose links and modes are listed in ``files.json``. Return its full version."""
    target.mkdir(parents=True)
    for entry in json.loads((source / "files.json").read_text("utf-8"))["files"]:
        path = target / entry["name"]
        path.parent.mkdir(parents=True, exist_ok=True)
        if not any(part in _UNUSED for part in Path(entry["name"]).parts):
            _unpack_entry(entry, source, path)
    link = target / "bin" / "python3"
    if not link.exists():
        link.symlink_to(next(target.glob("bin/python3.[0-9]*[0-9]")).name)
    return (source.parent / "PYTHON_VERSION").read_text("utf-8").strip()


def _unpack_entry(entry: dict[str, Any], source: Path, path: Path) -> None:
    """Write one entry of ``files.json`` to ``path``: a folder, a link or a file, whose data may be compressed."""
    packed = source / f"{entry['name']}.gz"
    if entry["perm"] & _FOLDER:
        path.mkdir(exist_ok=True)
    elif entry["perm"] & _SYMLINK:
        path.symlink_to(entry["symlink"])
    else:
        with (
            gzip.open(packed) if packed.is_file() else (source / entry["name"]).open("rb") as data,
            path.open("wb") as file,
        ):
            shutil.copyfileobj(data, file)
        path.chmod(0o755 if entry["perm"] & 0o100 else 0o644)
