"""Applying of a layer to a fresh machine."""

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
_LAY = """export LC_ALL=C
xargs -0 rm -rf -- <"$STEM.first" || exit 1
gzip -dc "$STEM.tgz" | tar -xpf - -C / || echo "tar: exit code $?" >&2
xargs -0 rm -rf -- <"$STEM.last"
rm -f "$STEM.first" "$STEM.last" "$STEM.tgz" """


@dataclass(frozen=True)
class LaidLayer:
    """The applied layer, ``kept_out`` paths that were not applied, and the machine's output."""

    content: LayerContent
    kept_out: list[bytes]
    said: str


def lay(box: Sandbox, layer: bytes, *, keep_out: Iterable[str]) -> LaidLayer:
    """Write the files of a layer to a fresh machine, except paths at, above or below ``keep_out`` and SYSTEM.

    The content is untrusted (``as_untrusted``). Raises one of ``archive.BROKEN`` if it is no layer, and Sandbox's
    errors.
    """
    places = [*SYSTEM, *(place.encode() for place in keep_out)]
    kept_out: list[bytes] = []

    def refused(path: bytes) -> bool:
        near = any(_is_within(path, place) or _is_within(place, path) for place in places)
        if near:
            kept_out.append(path)
        return near

    with LayerWriter.opened(prefix="") as writer:

        def add(member: tarfile.TarInfo, content: IO[bytes] | None) -> None:
            if not refused(b"/" + member.name.encode(errors="surrogateescape")):
                writer.add(member, content)

        content = read_content(layer, add)
    stem = f"/var/tmp/swe-argo-{secrets.token_hex(8)}"  # noqa: S108 - of the sandbox
    # Files of another kind are removed first; the rest last, because a tool that this needs may be among them.
    deleted = {path for path in content.deleted if not refused(path)}
    # The content of a deleted folder went with it. By now the folder may be a link, to the new place of its files.
    deleted = {path for path in deleted if deleted.isdisjoint(_folders_above(path))}
    box.write(f"{stem}.first", _list(path for path in deleted if path in content.changed))
    box.write(f"{stem}.last", _list(path for path in deleted if path not in content.changed))
    box.write(f"{stem}.tgz", writer.data)
    result = box.exec(_LAY, timeout_s=TIMEOUT_S, cwd="/", env={"STEM": stem}, merge=True, max_output_bytes=64 << 10)
    said = result.stdout.decode(errors="replace").strip()
    if result.timed_out or result.exit_code != 0:
        said = f"{said}\nlaying ended with {result.exit_code}".strip()
    return LaidLayer(content, sorted(set(kept_out)), said)


def _is_within(path: bytes, folder: bytes) -> bool:
    return path == folder or path.startswith(folder + b"/")


def _folders_above(path: bytes) -> list[bytes]:
    names = path.split(b"/")
    return [b"/".join(names[:length]) for length in range(2, len(names))]


def _list(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in sorted(set(paths)))
