"""The fields of a spec one by one, each with its place, its flag and its marks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from swe_argo.steps.contracts.field_docstrings import docstring_of
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.spec_table import File, Flag, How


@dataclass(frozen=True)
class SpecField:
    """A field of RunSpec: ``path`` is its place in TOML."""

    path: tuple[str, ...]
    table: type[BaseModel]
    """Which it is a field of."""
    info: FieldInfo
    flag: Flag

    @property
    def name(self) -> str:
        """agent.max_steps."""
        return ".".join(self.path)

    @property
    def option(self) -> str:
        """Its flag without the dashes, and without its negation: max-steps, fail-fast."""
        return self.flag.names[0].partition("/")[0].removeprefix("--")

    @property
    def docstring(self) -> str:
        """What it says about itself."""
        return docstring_of(self.table, self.path[-1])

    def of(self, spec: RunSpec) -> Any:
        """Its value in a spec."""
        value: Any = spec
        for name in self.path:
            value = getattr(value, name)
        return value

    def is_set(self, spec: RunSpec) -> bool:
        """Whether somebody set it, perhaps to its default."""
        holder: Any = spec
        for name in self.path[:-1]:
            holder = getattr(holder, name)
        return self.path[-1] in holder.model_fields_set

    @property
    def file(self) -> File | None:
        """What it names, where its value may be a path."""
        return next((mark for mark in self.info.metadata if isinstance(mark, File)), None)

    @property
    def is_how(self) -> bool:
        """Whether it says how a run is done, not what."""
        return any(isinstance(mark, How) for mark in self.info.metadata)


def fields(table: type[BaseModel] = RunSpec, path: tuple[str, ...] = ()) -> Iterator[SpecField]:
    """Every field of the spec, in the order of its declaration."""
    for name, info in table.model_fields.items():
        flag = next((mark for mark in info.metadata if isinstance(mark, Flag)), None)
        if flag:
            yield SpecField((*path, name), table, info, flag)
        elif isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from fields(info.annotation, (*path, name))


def file_fields() -> list[SpecField]:
    """The fields whose value may be a path or an address of a file."""
    return [field for field in fields() if field.file]


def replace_values(spec: RunSpec, values: Mapping[str, Any]) -> RunSpec:
    """A copy of the spec with other values in the fields of these names, unchecked."""
    copy = spec.model_copy(deep=True)
    for name, value in values.items():
        *tables, last = name.split(".")
        holder: Any = copy
        for table in tables:
            holder = getattr(holder, table)
        setattr(holder, last, value)
    return copy
