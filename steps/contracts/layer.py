"""What solve hands on of families whose answer is no patch: the files that changed in the machine."""

from __future__ import annotations

from typing import ClassVar, Literal

from swe_argo.steps.contracts.record import AnyText, Part, Place, Raw


class Layer(Raw):
    """The changes of an agent to its machine (steps/layers/archive.py), for families whose answer is not a patch.

    Empty if nothing changed, so that the layer of an earlier try is not taken for this one."""

    file: ClassVar[str] = "layer.tgz"
    place: ClassVar[Place] = Place.UNIT


class LayerChange(Part):
    """A file or folder that a layer has or removes."""

    path: AnyText
    """Absolute; bytes that are no text as surrogates of PEP 383."""
    change: Literal["new", "changed", "deleted"]
    size: int = 0
    """Bytes of a file."""


class LayerSummary(Part):
    """What a layer changes."""

    new: int
    changed: int
    deleted: int
    """Files and folders; what was in a folder that is deleted counts with it."""
    first: list[LayerChange]
    """In order of their paths, as many as people read."""
