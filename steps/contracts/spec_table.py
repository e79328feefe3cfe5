"""A table of a spec, and the marks on its fields: its flag, whether it names a file, what it decides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator
from pydantic_core import PydanticCustomError


class Flag:
    """How a field is spelt on the command line; the first name is ours, the others are those of other tools."""

    def __init__(self, *names: str) -> None:
        self.names = names


@dataclass(frozen=True)
class File:
    """Marks a field whose value is a path or an ``s3://`` address; with ``or_name`` it may be a name instead."""

    or_name: bool = False


@dataclass(frozen=True)
class How:
    """Marks a field that says how a run is done, not what: it may change when a run is resumed."""


class Table(BaseModel):
    """A TOML table: unknown keys are errors, and so are numbers without an end and bytes, which JSON does not have."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _is_text(cls, value: Any) -> Any:
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and any("\ud800" <= letter <= "\udfff" for letter in text):
                raise ValueError(f"{text[:60]!a} holds bytes that are no text")
        return value


def unknown_choice(names: Iterable[str]) -> PydanticCustomError:
    """The error for a value that is none of ``names``, worded as pydantic words that of a Literal."""
    *most, last = map(repr, names)
    expected = f"{', '.join(most)} or {last}"
    return PydanticCustomError("literal_error", "Input should be {expected}", {"expected": expected})
