"""Application of a layer to a fresh machine."""

from __future__ import annotations

import secrets
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO

from swe_argo.steps.layers.archive import LayerContent, LayerWriter, read_content
from swe_argo.steps.layers.listing import SYSTEM
from swe_argo.steps.sandbox.protocol import Sandbox

TIMEOUT_S = 900.0
"""Timeout of the script that applies a layer."""
_APPLY_SCRIPT = """export LC_ALL=C
xargs -0 rm -rf -- <"$STEM.first" || exit 1
gzip -dc "$STEM.tgz" | tar -xpf - -C / || echo "tar: exit code $?" >&2
xargs -0 rm -rf -- <"$STEM.last"
rm -f "$STEM.first" "$STEM.last" "$STEM.tgz" """
"""Deletes the paths in STEM.first, unpacks STEM.tgz, then deletes the paths in STEM.last."""


@dataclass(frozen=True)
class AppliedLayer:
    """The content of an applied layer, the paths not written because they are protected, and the machine's output."""

    content: LayerContent
    blocked: list[bytes]
    output: str


def apply_layer(box: Sandbox, layer: bytes, *, keep_out: Iterable[str]) -> AppliedLayer:
    """Write the files of a layer to a fresh machine, except paths at, above or below ``keep_out`` and SYSTEM.

    The content is untrusted (``as_untrusted``). Raises one of ``archive.BROKEN`` for an invalid layer, and what
    Sandbox's methods raise.
    """
    protected = [*SYSTEM, *(folder.encode() for folder in keep_out)]
    blocked: list[bytes] = []

    def is_blocked(path: bytes) -> bool:
        """Return whether a path overlaps a protected one; if so, note it."""
        overlaps = any(_is_within(path, folder) or _is_within(folder, path) for folder in protected)
        if overlaps:
            blocked.append(path)
        return overlaps

    with LayerWriter.opened(prefix="") as writer:

        def add(member: tarfile.TarInfo, content: IO[bytes] | None) -> None:
            if not is_blocked(b"/" + member.name.encode(errors="surrogateescape")):
                writer.add(member, content)

        content = read_content(layer, add)
    prefix = f"/var/tmp/swe-argo-{secrets.token_hex(8)}"  # noqa: S108 - of the sandbox
    # Files of another kind are removed first, other files last, since tools of this script may be among them.
    deleted = {path for path in content.deleted if not is_blocked(path)}
    # Files in a deleted folder are deleted with it. The folder may now be a link to their new location.
    deleted = {path for path in deleted if deleted.isdisjoint(_folders_above(path))}
    box.write(f"{prefix}.first", _list(path for path in deleted if path in content.changed))
    box.write(f"{prefix}.last", _list(path for path in deleted if path not in content.changed))
    box.write(f"{prefix}.tgz", writer.data)
    result = box.exec(
        _APPLY_SCRIPT, timeout_s=TIMEOUT_S, cwd="/", env={"STEM": prefix}, merge=True, max_output_bytes=64 << 10
    )
    output = result.stdout.decode(errors="replace").strip()
    if result.timed_out or result.exit_code != 0:
        output = f"{output}\napplying the layer ended with exit code {result.exit_code}".strip()
    return AppliedLayer(content, sorted(set(blocked)), output)


def _is_within(path: bytes, folder: bytes) -> bool:
    """Return whether a path is a folder or is below it."""
    return path == folder or path.startswith(folder + b"/")


def _folders_above(path: bytes) -> list[bytes]:
    """Return all folders above an absolute path, except the root."""
    names = path.split(b"/")
    return [b"/".join(names[:length]) for length in range(2, len(names))]


def _list(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in sorted(set(paths)))
