"""The base class of a spec's tables, and the marks of their fields: flag, file, may change on resume."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator
from pydantic_core import PydanticCustomError


class Flag:
    """Mark of a field with its names on the command line: our own first, then those of other tools."""

    def __init__(self, *names: str) -> None:
        self.names = names


@dataclass(frozen=True)
class File:
    """Mark of a field whose value is a path or an ``s3://`` address, or with ``or_name`` a name."""

    or_name: bool = False


@dataclass(frozen=True)
class Mutable:
    """Mark of a field that may change when a run is resumed: it does not affect results."""


class Table(BaseModel):
    """A TOML table. Unknown keys are errors, as are infinite numbers and bytes, which JSON does not have."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _refuse_bytes(cls, value: Any) -> Any:
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and any("\ud800" <= letter <= "\udfff" for letter in text):
                raise ValueError(f"{text[:60]!a} contains bytes that are not UTF-8 text")
        return value


def unknown_choice(names: Iterable[str]) -> PydanticCustomError:
    """Return the error for a value that is not in ``names``, in pydantic's words for a Literal."""
    *first, last = map(repr, names)
    expected = f"{', '.join(first)} or {last}"
    return PydanticCustomError("literal_error", "Input should be {expected}", {"expected": expected})
