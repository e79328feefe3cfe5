"""A trajectory as it was read from any format, and how rows are read whose keys may be missing or of any type."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from swe_argo.steps.contracts.recording import Action
from swe_argo.steps.contracts.trajectory import StopReason

Row = dict[str, Any]


@dataclass(frozen=True)
class Recorded:
    """One row, read: ``good`` is False where the recording ended in an error of its own infrastructure."""

    format: str
    instance_id: str
    model: str | None
    good: bool = True
    actions: list[Action] = field(default_factory=list)
    scaffold: str | None = None
    """Whose tools they are, where it is known that they are those of this project or of mini-swe-agent."""
    patch: str | None = None
    stop_reason: StopReason | None = None
    patch_alone: bool = False
    """Whether ``actions`` are its patch, for its tools are not here."""


def as_dict(value: object) -> Row:
    """The object, or the one in a JSON text; anything else is an empty one."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> Iterable[Any]:
    """The list, or an empty one."""
    return value if isinstance(value, list) else []


def as_name(value: object) -> str | None:
    """The text, or None where there is none."""
    return value if isinstance(value, str) and value else None


def as_text(value: object) -> str | None:
    """The text, perhaps empty; a list of content parts is their texts, one after the other."""
    if isinstance(value, list):
        value = "".join(str(as_dict(part).get("text") or "") for part in value)
    return value if isinstance(value, str) else None


def as_reason(value: object) -> StopReason | None:
    """The reason of that name."""
    return StopReason(value) if isinstance(value, str) and value in set(StopReason) else None
