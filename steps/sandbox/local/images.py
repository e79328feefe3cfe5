"""Unpacked images: ``<root>/<name, / as __>/testbed``, a git checkout, beside an optional file ``digest``."""

from __future__ import annotations

from pathlib import Path

from swe_argo.steps.contracts.sandbox_spec import LocalSpec
from swe_argo.steps.settings import settings


def image_root(spec: LocalSpec) -> Path:
    """Return the folder of all images: the spec's, else this user's."""
    return Path(spec.images).expanduser() if spec.images else settings().local_images


def image_folder(root: Path, name: str) -> Path:
    """Return the folder for an image, which may not exist."""
    return root / name.replace("/", "__")


def read_digest(folder: Path) -> str | None:
    """Return the digest of an unpacked image, if known."""
    file = folder / "digest"
    return file.read_text().strip() if file.is_file() else None
