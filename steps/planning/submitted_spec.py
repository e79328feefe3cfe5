"""Checks of a submitted spec, which may not name files, code or backends of the machine that plans it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from swe_argo.steps.contracts.agent_spec import FROM_RUN, AgentSpec
from swe_argo.steps.contracts.agents import is_own
from swe_argo.steps.contracts.backends import find_backend, is_own_backend
from swe_argo.steps.contracts.families import is_own_family
from swe_argo.steps.contracts.ids import is_run_id
from swe_argo.steps.contracts.run_spec import LAST_VALIDATION, RunSpec
from swe_argo.steps.contracts.spec_fields import fields, file_fields
from swe_argo.steps.contracts.train_spec import TrainSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.plugins import file_of

BUCKET = "s3://"
_LOCAL_FILE = "a submitted run cannot read local files: give an s3:// address"
_HOST_FIELDS = ("agent.folder", "sandbox.allow_host", "sandbox.kubernetes.namespace", "sandbox.kubernetes.context")
_HOST_TABLES = ("sandbox.local.", "sandbox.docker.")
_DATASET_NAME = re.compile(r"(?!file:)[a-z0-9][\w.@:-]{0,150}(/[a-z0-9][\w.@:-]{0,150})?", re.ASCII | re.IGNORECASE)
"""A bundled dataset, an alias, an entry of Harbor's registry, or a hub id with its configuration and revision."""


def refuse_local(spec: RunSpec, plugins: Collection[str]) -> None:
    """Raise ConfigError if a spec names files, code or a backend of this machine.

    ``plugins``: the code that a spec may name, as MODULE:NAME.
    """
    refuse_placeholders(spec)
    refuse_code(spec, plugins)
    refuse_host_fields(spec)
    for field in file_fields():
        value = field.of(spec)
        if value is not None and not value.startswith(BUCKET) and not is_name(field.name, value):
            raise ConfigError(_LOCAL_FILE, field=field.name)


def refuse_local_training(spec: TrainSpec, plugins: Collection[str]) -> None:
    """Raise ConfigError if a training names files, code or a backend of this machine, as ``refuse_local``."""
    refuse_placeholders(spec)
    if spec.tokenizer is not None and not _is_dataset(spec.tokenizer):
        raise ConfigError(_LOCAL_FILE, field="tokenizer")
    try:
        refuse_local(spec.run, plugins)
    except ConfigError as error:
        reason = error.reason.removeprefix(f"{error.field}: ")
        raise ConfigError(reason, field=f"run.{error.field}") from None


def refuse_recipe_folder(agent: AgentSpec) -> None:
    """Raise ConfigError if the agent's recipe has its files in a folder of this machine."""
    from swe_argo.steps.bundles.recipes import read_recipe

    if agent.file is not None and read_recipe(Path(agent.file)).source.folder is not None:
        raise ConfigError(
            "a submitted run cannot read local folders: replace source.folder by an image, "
            "as printed by swe-argo agents push",
            field="agent.file",
        )


def refuse_placeholders(spec: BaseModel) -> None:
    """Raise ConfigError if the spec has text that Argo would evaluate in a parameter."""
    for name, text in _texts(spec.model_dump(mode="json")):
        if "{{" in text:
            raise ConfigError("text with '{{' is not allowed: Argo would evaluate it", field=name)


def refuse_code(spec: RunSpec, plugins: Collection[str] | None) -> None:
    """Raise ConfigError if a spec names code that is not among the plugins, or a backend that no pod can use.

    ``plugins`` None: any module is accepted, for a client that does not know the plugins of the namespace.
    """
    backend, family = spec.sandbox.backend, spec.family or ""
    is_plugin = plugins is not None and is_own_backend(backend)
    if not is_plugin and not find_backend(backend).serves_pods:
        raise ConfigError(
            f"pods cannot use backend {backend}: leave it out, or use swe-argo run", field="sandbox.backend"
        )
    code_fields = {"agent.name": (spec.agent.name, is_own(spec.agent.name)), "family": (family, is_own_family(family))}
    for field, (name, is_code) in (code_fields | {"sandbox.backend": (backend, is_plugin)}).items():
        if not is_code:
            continue
        if plugins is None and file_of(name):
            raise ConfigError(
                "the image of the steps does not contain local files: build your own image and name its "
                "package.module:NAME (docs/add-an-agent.md)",
                field=field,
            )
        if plugins is not None and (name not in plugins or file_of(name)):
            raise ConfigError(f"{name} is not among the plugins of this namespace (chart value plugins)", field=field)


def refuse_host_fields(spec: RunSpec) -> None:
    """Raise ConfigError if a spec sets a field of the machine that plans the run, or lifts its isolation."""
    default = RunSpec()
    for field in fields():
        is_of_host = field.name in _HOST_FIELDS or field.name.startswith(_HOST_TABLES)
        if is_of_host and field.of(spec) != field.of(default):
            raise ConfigError("a submitted run cannot set this: leave it out", field=field.name)


def is_name(field: str, value: str) -> bool:
    """Return whether the value of a file field is a name, not a file: a dataset, a template, ``last``, ``run:ID``."""
    match field:
        case "dataset" | "answers":
            return _is_dataset(value)
        case "agent.instruction_template":
            from swe_argo.steps.agents.prompts import templates

            return templates.is_bundled(value)
        case "select.validated":
            return value == LAST_VALIDATION
        case "agent.predictions":
            return value.startswith(FROM_RUN) and is_run_id(value.removeprefix(FROM_RUN))
    return False


def _is_dataset(value: str) -> bool:
    """Return whether the value names a dataset that is not a file of this machine."""
    if not _DATASET_NAME.fullmatch(value.strip()):
        return False
    unpinned = value.rpartition("@")[0] or value
    return not any(_is_dataset_file(name, Path(name)) for name in (value, unpinned))


def _is_dataset_file(value: str, path: Path) -> bool:
    """Decide as datasets/load.py: a file by its suffix, an existing folder, unless a dataset has the name."""
    from swe_argo.steps.datasets import files, names

    if path.suffix.lower() in files.SUFFIXES:
        return True
    is_alias = "/" not in value and names.hub_id(value) is not None
    return path.is_dir() and not is_alias and not names.is_bundled(value)


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text in a JSON value, including keys, with the name of its field."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, name)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield name, key
            yield from _texts(item, f"{name}.{key}" if name else key)
