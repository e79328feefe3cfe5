"""A run request: a complete, checked spec, merged from fields, files, a model group and the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.ids import is_run_id
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.spec_parsing import Tables, agent_name, check_spec, is_set, merge_tables, read_spec_file, set_field
from swe_argo.workflows.api import variables

KEY = "LLM_API_KEY"
"""The environment variable in which steps receive the API key of a model group."""


@dataclass(frozen=True)
class RunRequest:
    """A complete, checked spec and the values that are not part of it."""

    spec: RunSpec
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables for the environment of the steps only: the API key of a model group."""
    notes: tuple[str, ...] = ()
    """Messages for the user about the origin of values."""
    chosen: Tables = field(default_factory=dict, repr=False)
    """The values that the user set, without those that follow from an agent's defaults."""


def make_request(fields: Mapping[str, Any] | None = None, *, file: str | Path | None = None) -> RunRequest:
    """Return the request that ``swe-argo run`` makes from the same values.

    ``fields``: dotted field names, as for ``--set``, or nested tables: ``{"agent.name": "gold"}`` or
    ``{"agent": {"name": "gold"}}``. Precedence: ``fields``, ``file`` (a spec in TOML), the group of ``llm.config``,
    environment variables, defaults. Without ``run_id`` the name contains the time. Raises ConfigError that names each
    wrong field and the fix.
    """
    tables = read_spec_file(Path(file)) if file else {}
    for name, value in (fields or {}).items():
        override: Tables = {}
        set_field(override, tuple(name.split(".")), _without_paths(value))
        tables = merge_tables(tables, override)
    return complete(tables, str(file) if file else "fields")


def _without_paths(value: Any) -> Any:
    """Return the value with paths converted to text."""
    if isinstance(value, Mapping):
        return {name: _without_paths(item) for name, item in value.items()}
    return str(value) if isinstance(value, PurePath) else value


def complete(tables: Tables, source: str) -> RunRequest:
    """Return the request for these tables; errors name ``source``. Raises ConfigError if a field is wrong."""
    tables, env, notes = _with_group(tables)
    notes += variables.apply_environment(tables)
    if not is_set(tables, ("agent", "name")) and is_set(tables, ("agent", "model")) and agent_name(tables) == "r2egym":
        notes.append("a model and no --agent: r2egym works with it")
    chosen = merge_tables({}, tables)
    spec = check_spec(tables, source)
    spec_with_id = spec if spec.run_id else spec.model_copy(update={"run_id": _name(spec)})
    return RunRequest(spec_with_id, env, tuple(notes), chosen)


def _with_group(tables: Tables) -> tuple[Tables, dict[str, str], list[str]]:
    """Return the tables merged over their model group, the group's API key, and notes on ineffective group settings."""
    llm = tables.get("llm")
    if not isinstance(llm, dict) or llm.get("config") is None:
        return tables, {}, []
    from swe_argo.steps.models.config_groups import read_group

    group = read_group(str(llm.get("config_file", RunSpec().llm.config_file)), str(llm["config"]))
    key = {KEY: group.key.get_secret_value()} if group.key else {}
    return merge_tables(group.fields, tables), key, list(group.notes)


def _name(spec: RunSpec) -> str:
    """Return the default run id: agent-dataset-time, with only legal characters."""
    return make_name(agent_of(spec.agent).name, spec.dataset)


def make_name(prefix: str, dataset: str, max_length: int = 63) -> str:
    """Return prefix-dataset-time with only legal characters, at most ``max_length`` long.

    Its beginning is cut off if it is too long, so that the time stays.
    """
    name = f"{prefix}-{Path(dataset).name.split('.')[0]}-{datetime.now(UTC):%Y%m%d-%H%M%S}".lower()
    name = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in name)[-max_length:].strip("-")
    return name if is_run_id(name) else f"run-{datetime.now(UTC):%Y%m%d-%H%M%S}"
