"""Upload of an agent program's files into a sandbox, by exec and write, for backends that cannot mount them."""

from __future__ import annotations

import gzip
import io
import shlex
import tempfile
from typing import IO, cast

from swe_argo.steps.bundles.tree import write_tar
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.recipe import BUNDLE_PLACE
from swe_argo.steps.errors import InfraError
from swe_argo.steps.sandbox.bundle_mounts import folder_of
from swe_argo.steps.sandbox.protocol import Sandbox, SandboxRequest

_PARTS = "/opt/swe-argo/.parts"
_MARK = "/opt/swe-argo/.digest"
PIECE_BYTES = 16 << 20
"""The bytes held in memory and sent at a time."""
_UNPACK_S = 600.0


def upload_bundle(box: Sandbox, request: SandboxRequest) -> None:
    """Unpack the agent's files in the sandbox, unless its template or snapshot already has them.

    Raises ConfigError if this machine does not have them; InfraError; ResourceError.
    """
    if request.bundle is None or _has(box, request.bundle.digest):
        return
    folder = folder_of(request.bundle)
    with tempfile.TemporaryFile() as packed:
        with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=3, mtime=0) as zipped:
            write_tar(folder, cast("IO[bytes]", zipped))
        _send(box, packed)
    place, parts = map(shlex.quote, (BUNDLE_PLACE, _PARTS))
    done = box.exec(
        f"set -e -o pipefail; rm -rf {place}; mkdir -p {place}; cat {parts}/* | tar -xzf - -C {place}; "
        f"rm -rf {parts}; {sealing(request.bundle.digest)}",
        timeout_s=_UNPACK_S,
        cwd="/",
        merge=True,
    )
    if done.exit_code != 0:
        said = done.stdout[-300:].decode(errors="replace").strip()
        raise InfraError(FailureClass.SANDBOX_CREATE, f"could not unpack the agent's files in the sandbox: {said}")


def sealing(digest: str) -> str:
    """Return the shell command that makes the unpacked files read-only and records their digest."""
    return f"chmod -R a-w {shlex.quote(BUNDLE_PLACE)} && printf %s {shlex.quote(digest)} >{shlex.quote(_MARK)}"


def _send(box: Sandbox, packed: IO[bytes]) -> None:
    packed.seek(0, io.SEEK_SET)
    number = 0
    while piece := packed.read(PIECE_BYTES):
        box.write(f"{_PARTS}/{number:06d}", piece)
        number += 1


def _has(box: Sandbox, digest: str) -> bool:
    try:
        return box.read(_MARK, max_bytes=1 << 10) == digest.encode()
    except OSError:
        return False
