"""A trajectory read from any format, and tolerant readers for values that may be missing or of any type."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from swe_argo.steps.contracts.recording import Action
from swe_argo.steps.contracts.trajectory import StopReason

Row = dict[str, Any]


@dataclass(frozen=True)
class ParsedTrajectory:
    """A parsed trajectory row; ``is_outcome`` is False if it ended in an infrastructure failure."""

    format: str
    instance_id: str
    model: str | None
    is_outcome: bool = True
    actions: list[Action] = field(default_factory=list)
    scaffold: str | None = None
    """Scaffold whose tools were used, if these are this project's or mini-swe-agent's."""
    patch: str | None = None
    stop_reason: StopReason | None = None
    is_patch_only: bool = False
    """Whether ``actions`` only apply the patch, because the recording's tools are unknown here."""


def as_dict(value: object) -> Row:
    """Return the object, parsed from JSON text if necessary; {} for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> Iterable[Any]:
    """Return the list, or an empty one."""
    return value if isinstance(value, list) else []


def as_name(value: object) -> str | None:
    """Return the value if it is a non-empty text, else None."""
    return value if isinstance(value, str) and value else None


def as_text(value: object) -> str | None:
    """Return the value if it is a text, the joined texts of a list of content parts, else None."""
    if isinstance(value, list):
        value = "".join(str(as_dict(part).get("text") or "") for part in value)
    return value if isinstance(value, str) else None


def as_reason(value: object) -> StopReason | None:
    """Return the stop reason with this name, None if it is unknown."""
    return StopReason(value) if isinstance(value, str) and value in set(StopReason) else None
