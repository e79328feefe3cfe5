"""Binary of the model gateway, shipped in wheels and images; a checkout builds it once.

``python -m swe_argo.steps.agents.gateway.binary`` builds it for every architecture, into the folder that images and
wheels include.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from swe_argo.steps.agents.gateway.compiler import (
    ARCHITECTURES,
    SHIPPED,
    compile_gateway,
    compile_shipped,
    is_shipped,
    source_digest,
)
from swe_argo.steps.errors import ConfigError, StepError, one_line
from swe_argo.steps.settings import settings

_MAX_VERSIONS = 8
"""Most source versions with stored binaries, because several checkouts may be in use."""
_INSTALL_HINT = "the model gateway was not built: install Go 1.24 or newer, or install the wheel, which includes it"


def _write_to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")


@cache
def find_gateway(architecture: str, show: Callable[[str], None] = _write_to_stderr) -> bytes:
    """Return the program for Linux on amd64 or arm64.

    Args:
        architecture: amd64 or arm64.
        show: callback for a message if the program has to be built.

    Raises:
        ConfigError: If the program is missing and cannot be built.
    """
    shipped = SHIPPED / f"gateway-{architecture}"
    if is_shipped():
        return shipped.read_bytes()
    folder = settings().home_folder / "gateway"
    file = folder / source_digest() / shipped.name
    try:
        if not file.is_file():
            with _hold_lock(folder):
                if not file.is_file():
                    show(_notice(architecture))
                    with _explain_failure():
                        compile_gateway(file.parent, (architecture,), _find_go())
                    _remove_oldest(folder, shipped.name)
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"the model gateway cannot be stored in {folder}: {error}", field="agent") from error


def ship() -> None:
    """Build the programs for wheels and images, unless they exist. Raises ConfigError if that fails."""
    with _hold_lock(settings().home_folder / "gateway"), _explain_failure():
        if not is_shipped():
            _write_to_stderr(_notice(" and ".join(ARCHITECTURES)))
            compile_shipped(_find_go())


def _find_go() -> str:
    """Return the path of Go's command, which is installed if necessary. Raises ConfigError if that fails."""
    from swe_argo.steps.bundles.tools import go

    try:
        return go()[0]
    except StepError as error:
        raise ConfigError(f"{_INSTALL_HINT} ({error.reason})", field="agent") from error


def _notice(architectures: str) -> str:
    return (
        f"building the model gateway of agent programs for {architectures} with Go (once per checkout, takes a minute)"
    )


def _remove_oldest(folder: Path, name: str) -> None:
    """Remove the binaries ``name`` of all but the newest source versions."""
    binaries = sorted(folder.glob(f"*/{name}"), key=lambda file: file.stat().st_mtime)
    for old in binaries[:-_MAX_VERSIONS]:
        shutil.rmtree(old.parent, ignore_errors=True)


@contextmanager
def _explain_failure() -> Iterator[None]:
    """Raise ConfigError with the compiler's message if the compilation inside fails."""
    try:
        yield
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
