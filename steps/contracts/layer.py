"""Layers: the submission of families whose answer is not a patch, as a diff of the sandbox's files."""

from __future__ import annotations

from typing import ClassVar, Literal

from swe_argo.steps.contracts.record import AnyText, Part, Place, Raw


class Layer(Raw):
    """The files that an agent changed in its sandbox (steps/layers/archive.py).

    Empty, not missing, if there are none, so that it replaces the layer of an earlier try.
    """

    file: ClassVar[str] = "layer.tgz"
    place: ClassVar[Place] = Place.UNIT


class LayerChange(Part):
    """A file or folder that a layer adds, changes or removes."""

    path: AnyText
    """Absolute path; undecodable bytes are surrogates (PEP 383)."""
    change: Literal["new", "changed", "deleted"]
    size: int = 0
    """Size of a file, in bytes."""


class LayerSummary(Part):
    """The number of changes in a layer, and the first ones."""

    new: int
    changed: int
    deleted: int
    """Deleted files and folders; a deleted folder counts once."""
    first: list[LayerChange]
    """The first changes by path, as many as a page shows."""
