"""Binary of the model gateway, shipped in wheels and images; a checkout builds it once.

``python -m swe_argo.steps.gateway.binary`` builds it for every architecture, into the folder that images and
wheels include.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from swe_argo.steps.errors import ConfigError, StepError, one_line
from swe_argo.steps.settings import settings

ARCHITECTURES = ("amd64", "arm64")
SOURCE = Path(__file__).resolve().with_name("program")
SHIPPED = Path(__file__).resolve().with_name("built")
"""Folder of the binaries that wheels and images include."""
_DIGEST_FILE = "source"
"""File beside the binaries with the digest of their source."""


def source_digest() -> str:
    """Return the digest of the Go source."""
    digest = hashlib.sha256()
    for file in sorted(SOURCE.iterdir()):
        digest.update(f"{file.name}\n{file.stat().st_size}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def is_shipped() -> bool:
    """Return whether the shipped binaries were built from the current source."""
    try:
        return (SHIPPED / _DIGEST_FILE).read_text() == source_digest()
    except OSError:
        return False


def compile_shipped(go: str) -> None:
    """Compile the binaries that wheels and images include, and store their source's digest beside them."""
    (SHIPPED / _DIGEST_FILE).unlink(missing_ok=True)
    compile_gateway(SHIPPED, ARCHITECTURES, go)
    (SHIPPED / _DIGEST_FILE).write_text(source_digest())


def compile_gateway(folder: Path, architectures: Sequence[str], go: str) -> None:
    """Write ``gateway-ARCHITECTURE`` into a folder.

    Raises subprocess.CalledProcessError if the compiler fails, OSError if it or the folder cannot be used.
    """
    with tempfile.TemporaryDirectory(prefix="swe-argo-") as name:
        scratch = Path(name)
        for architecture in architectures:
            command = [go, "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid="]
            environment = {
                "PATH": os.environ.get("PATH", os.defpath),
                **{"HOME": name, "GOCACHE": str(scratch / "cache"), "GOPATH": str(scratch / "path")},
                **{"CGO_ENABLED": "0", "GOOS": "linux", "GOARCH": architecture},
                **{"GOTOOLCHAIN": "local", "GOPROXY": "off", "GOFLAGS": "", "GOWORK": "off"},
            }
            output = scratch / f"gateway-{architecture}"
            subprocess.run(
                [*command, "-o", str(output), "."], cwd=SOURCE, env=environment, check=True, capture_output=True
            )
        folder.mkdir(parents=True, exist_ok=True)
        for architecture in architectures:
            part = folder / f".gateway-{architecture}.{os.getpid()}"  # renamed when complete
            shutil.copyfile(scratch / f"gateway-{architecture}", part)
            part.replace(folder / f"gateway-{architecture}")


_MAX_VERSIONS = 8
"""Most source versions with stored binaries, because several checkouts may be in use."""
_INSTALL_HINT = "the model gateway was not built: install Go 1.24 or newer, or install the wheel, which includes it"


def _write_to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")


@cache
def find_gateway(architecture: str, show: Callable[[str], None] = _write_to_stderr) -> bytes:
    """Return the program for Linux on amd64 or arm64. Raises ConfigError if it is missing and cannot be built."""
    shipped = SHIPPED / f"gateway-{architecture}"
    if is_shipped():
        return shipped.read_bytes()
    folder = settings().home_folder / "gateway"
    file = folder / source_digest() / shipped.name
    try:
        if not file.is_file():
            with _hold_lock(folder):
                if not file.is_file():
                    _build((architecture,), partial(compile_gateway, file.parent, (architecture,)), show)
                    binaries = sorted(folder.glob(f"*/{shipped.name}"), key=lambda binary: binary.stat().st_mtime)
                    for old in binaries[:-_MAX_VERSIONS]:
                        shutil.rmtree(old.parent, ignore_errors=True)
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"the model gateway cannot be stored in {folder}: {error}", field="agent") from error


def ship() -> None:
    """Build the programs for wheels and images, unless they exist. Raises ConfigError if that fails."""
    with _hold_lock(settings().home_folder / "gateway"):
        if not is_shipped():
            _build(ARCHITECTURES, compile_shipped, _write_to_stderr)


def _build(architectures: Sequence[str], compile_with: Callable[[str], None], show: Callable[[str], None]) -> None:
    """Announce a compilation, and call ``compile_with`` with Go's command, which is installed if necessary.

    Raises ConfigError if Go cannot be installed, or with the compiler's message.
    """
    from swe_argo.steps.bundles.tools import go

    names = " and ".join(architectures)
    show(f"building the model gateway of agent programs for {names} with Go (once per checkout, takes a minute)")
    try:
        compile_with(go()[0])
    except StepError as error:
        raise ConfigError(f"{_INSTALL_HINT} ({error.reason})", field="agent") from error
    except subprocess.CalledProcessError as error:
        message = one_line(error.stderr.decode(errors="replace"), 300)
        raise ConfigError(f"{_INSTALL_HINT} ({message})", field="agent") from error


@contextmanager
def _hold_lock(folder: Path) -> Iterator[None]:
    """Hold the build lock, so that concurrent units build the binary once."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        ship()
    except ConfigError as failure:
        sys.exit(failure.reason)
