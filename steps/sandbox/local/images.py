"""Unpacked images: ``<root>/<name, / as __>/testbed``, a git checkout, and where it is known ``digest`` beside it."""

from __future__ import annotations

from pathlib import Path

from swe_argo.steps.contracts.sandbox_spec import LocalSpec
from swe_argo.steps.settings import settings


def image_root(spec: LocalSpec) -> Path:
    """The folder of all images: the spec's, else this person's."""
    return Path(spec.images).expanduser() if spec.images else settings().local_images


def image_folder(root: Path, name: str) -> Path:
    """Where an image is, if it is there."""
    return root / name.replace("/", "__")


def read_digest(folder: Path) -> str | None:
    """The digest of the image from which a folder was made."""
    file = folder / "digest"
    return file.read_text().strip() if file.is_file() else None
