"""Compiler of the model gateway: from Go source to one binary per architecture.

Imports only the standard library, because the package's build hook runs it without any dependencies installed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

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
    """Compile the binaries that wheels and images include, and store their source's digest beside them.

    Raises as ``compile_gateway``.
    """
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
