"""Images of buildah -> one archive as ``docker save`` writes it: what they share, their base above all, is in it once.

buildah itself writes one archive an image: ``python3 images/archive.py ARCHIVE NAME...``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

LISTS = ("manifest.json", "repositories")
"""What of an archive names its images; all else is named by its content."""


def write_archive(archive: Path, names: list[str]) -> None:
    """Write the images of these names. Raises CalledProcessError where buildah has one of them not."""
    images: list[dict[str, Any]] = []
    added_names: set[str] = set()
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder, tarfile.open(archive, "w") as whole:
        for name in names:
            one = Path(folder, "one.tar")
            subprocess.run(["buildah", "push", "--quiet", name, f"docker-archive:{one}:{name}"], check=True)
            images += _add(whole, one, added_names)
            one.unlink()
        manifest = Path(folder, LISTS[0])
        manifest.write_text(json.dumps(images))
        whole.add(manifest, LISTS[0])


def _add(whole: tarfile.TarFile, one: Path, added_names: set[str]) -> list[dict[str, Any]]:
    """Add what is not there yet; the list of the archive's images."""
    with tarfile.open(one) as source:
        for member in source:
            if member.name not in added_names and member.name not in LISTS:
                added_names.add(member.name)
                whole.addfile(member, source.extractfile(member) if member.isfile() else None)
        manifest = source.extractfile(LISTS[0])
        assert manifest is not None
        images: list[dict[str, Any]] = json.load(manifest)
        return images


if __name__ == "__main__":
    write_archive(Path(sys.argv[1]), sys.argv[2:])
