"""Identity of a run: the decisive fields of its spec, and hashes of the files that these name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from swe_argo.steps.contracts.agent_spec import FROM_RUN
from swe_argo.steps.contracts.agents import is_own
from swe_argo.steps.contracts.families import is_own_family
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.spec_fields import SpecField, file_fields
from swe_argo.steps.contracts.spec_table import File, Mutable
from swe_argo.steps.datasets.records import local_path
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.plugins import file_of


def input_hashes(spec: RunSpec) -> dict[str, str]:
    """Return field -> sha256 of its file or folder, which under one run id may move but not change.

    A field that names an earlier run (``run:ID``) keeps its text. Raises ConfigError if a file is missing.
    """
    paths = {field.name: field.of(spec) for field in _hashed_fields()}
    hashes = {}
    if is_own(spec.agent.name) and (file := file_of(spec.agent.name)):
        paths["agent.file"] = str(file)
    if spec.family and is_own_family(spec.family) and (file := file_of(spec.family)):
        paths["family.file"] = str(file)
    for name, value in paths.items():
        if value is None:
            continue
        if value.startswith(FROM_RUN):
            hashes[name] = value
            continue
        path = local_path(value, name)
        if not path.exists():
            raise ConfigError(f"there is no file {value}", field=name)
        digest = hashlib.sha256()
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                digest.update(file.read_bytes())
        hashes[name] = digest.hexdigest()
    return hashes


def decisive_hashes(hashes: dict[str, str]) -> dict[str, str]:
    """Return the hashes of decisive files, without those that affect only execution, such as sandbox resources."""
    mutable = {field.name for field in _hashed_fields() if field.is_changeable}
    return {name: value for name, value in hashes.items() if name not in mutable}


def identity_fields(spec: RunSpec) -> dict[str, Any]:
    """Return the flat decisive fields, without execution settings and without paths that are hashed."""
    return dict(_decisive_fields(spec, ""))


def _hashed_fields() -> list[SpecField]:
    """Return the fields that always hold a path, unlike those that may also hold a name."""
    return [field for field in file_fields() if field.file and not field.file.or_name]


def _decisive_fields(table: BaseModel, prefix: str) -> Iterable[tuple[str, Any]]:
    """Yield the dotted name and the value of each decisive field, nested tables included."""
    for name, info in type(table).model_fields.items():
        value = getattr(table, name)
        if isinstance(value, BaseModel):
            yield from _decisive_fields(value, f"{prefix}{name}.")
        elif Mutable() not in info.metadata and File() not in info.metadata:
            yield f"{prefix}{name}", value
