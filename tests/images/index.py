"""A package index of the wheels of a lock, behind a password: only who was told it can install."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests import http_server
from tests.debian import cache_path
from tests.http_server import Handler

USER, PASSWORD = "reader", "hush-4711"


class NoWheelsError(Exception):
    """Why the packages could not be fetched."""


def wheels(lock: Path, python: str) -> Path:
    """A folder with a wheel of every package of ``lock`` for Linux and ``python`` (``3.11``), kept between test runs.

    They come from the index that pip uses here. Raises NoWheelsError.
    """
    folder = cache_path(f"wheels-{python}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}")
    with cache_path("wheels.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not folder.exists():
            _fetch(lock, python, folder)
    return folder


def _fetch(lock: Path, python: str, folder: Path) -> None:
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in range(5, 37)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", "--only-binary=:all:", f"--python-version={python}", *platforms]
    with tempfile.TemporaryDirectory(prefix=".wheels-", dir=folder.parent) as scratch:
        new = Path(scratch) / "new"
        result = subprocess.run(
            [*command, "-r", str(lock), "-d", str(new)], capture_output=True, text=True, check=False
        )
        if result.returncode:
            raise NoWheelsError(f"pip cannot download the packages: {result.stderr.strip().splitlines()[-1]}")
        new.rename(folder)


@dataclass
class Index:
    """Where it is, password included, and the paths that were fetched."""

    url: str = ""
    fetched: list[str] = field(default_factory=list)


@contextmanager
def serve(*folders: Path) -> Iterator[Index]:
    """The wheels of these folders as a simple index (PEP 503) on a free port of 127.0.0.1."""
    index = Index()
    files_by_name = {path.name: path for folder in folders for path in folder.iterdir()}
    expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Packages(Handler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            name = self.path.strip("/").split("/")[-1]
            if self.headers.get("Authorization") != expected:
                return self.answer(401, WWW_Authenticate='Basic realm="index"')
            if self.path.startswith("/files/"):
                index.fetched.append(name)
                return self.answer(200, files_by_name[name].read_bytes(), Content_Type="application/zip")
            files = [file for file in files_by_name if _project(file) == name]
            page = "".join(f'<a href="/files/{file}">{file}</a>\n' for file in files)
            return self.answer(200 if files else 404, f"<!DOCTYPE html>{page}", Content_Type="text/html")

    with http_server.serve(Packages) as address:
        index.url = f"{address.replace('://', f'://{USER}:{PASSWORD}@')}/simple"
        yield index


def _project(wheel: str) -> str:
    """The normalised name of the project a wheel is of."""
    return re.sub(r"[-_.]+", "-", wheel.partition("-")[0]).lower()
