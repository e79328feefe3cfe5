"""What solve hands on of families whose answer is no patch: the files that changed in the machine."""

from __future__ import annotations

from typing import ClassVar, Literal

from swe_argo.steps.contracts.record import AnyText, Part, Place, Raw


class Layer(Raw):
    """What an agent changed in its machine, as steps/layers/archive.py writes it: of families whose answer is no patch.

    Empty where nothing changed, so that no earlier try's is taken for this one's."""

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
