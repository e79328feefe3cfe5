"""Binary of the model gateway, shipped in wheels and images; a checkout builds it once.

``python -m swe_argo.steps.agents.gate.binary`` builds it for every architecture, into the folder that images and wheels
include.
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

from swe_argo.steps.agents.gate.compiler import (
    ARCHITECTURES,
    SHIPPED,
    compile_gateway,
    compile_shipped,
    is_shipped,
    source_digest,
)
from swe_argo.steps.errors import ConfigError, StepError, one_line
from swe_argo.steps.settings import settings

_KEPT = 8
"""Source versions whose binaries are kept, as several checkouts may be in use."""
_WAY_OUT = "the model gateway was not built: install Go 1.24 or newer, or the wheel, which carries it"


def _write_to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")


@cache
def find_gate(architecture: str, show: Callable[[str], None] = _write_to_stderr) -> bytes:
    """Return the program for Linux on amd64 or arm64.

    Args:
        architecture: amd64 or arm64.
        show: is called with a line if the program has to be built.

    Raises:
        ConfigError: the program is missing and cannot be built.
    """
    shipped = SHIPPED / f"gate-{architecture}"
    if is_shipped():
        return shipped.read_bytes()
    folder = settings().home_folder / "gate"
    file = folder / source_digest() / shipped.name
    try:
        if not file.is_file():
            with _alone(folder):
                if not file.is_file():
                    show(_notice(architecture))
                    with _explain_failure():
                        compile_gateway(file.parent, (architecture,), _find_go())
                    _remove_oldest(folder, shipped.name)
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"the model gateway cannot be kept in {folder}: {error}", field="agent") from error


def ship() -> None:
    """Build the programs that wheels and images carry, unless they are there. Raises ConfigError if that fails."""
    with _alone(settings().home_folder / "gate"), _explain_failure():
        if not is_shipped():
            _write_to_stderr(_notice(" and ".join(ARCHITECTURES)))
            compile_shipped(_find_go())


def _find_go() -> str:
    from swe_argo.steps.bundles.tools import go

    try:
        return go()[0]
    except StepError as error:
        raise ConfigError(f"{_WAY_OUT} ({error.reason})", field="agent") from error


def _notice(architectures: str) -> str:
    return f"building the model gateway of agent programs for {architectures} with Go (once in a checkout, a minute)"


def _remove_oldest(folder: Path, name: str) -> None:
    built = sorted(folder.glob(f"*/{name}"), key=lambda file: file.stat().st_mtime)
    for old in built[:-_KEPT]:
        shutil.rmtree(old.parent, ignore_errors=True)


@contextmanager
def _explain_failure() -> Iterator[None]:
    try:
        yield
    except subprocess.CalledProcessError as error:
        message = one_line(error.stderr.decode(errors="replace"), 300)
        raise ConfigError(f"{_WAY_OUT} ({message})", field="agent") from error


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
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
