"""A spec that was asked for, whole and checked: over a group of models and the environment, with a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.ids import is_run_id
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.spec_parsing import Tables, agent_name, checked, has, laid_over, of_file, put
from swe_argo.workflows.api import variables

KEY = "LLM_API_KEY"
"""The variable by which steps are handed the key of a group."""


@dataclass(frozen=True)
class RunRequest:
    """A spec, whole and checked, and what goes beside it."""

    spec: RunSpec
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For the environment of the steps, and nowhere else: the key of a group of models."""
    notes: tuple[str, ...] = ()
    """What a person should know of where it came from."""
    chosen: Tables = field(default_factory=dict, repr=False)
    """What somebody said of it, not what follows from an agent's own defaults."""


def make_request(fields: Mapping[str, Any] | None = None, *, file: str | Path | None = None) -> RunRequest:
    """What ``swe-argo run`` makes of the same words.

    ``fields``: names of fields with dots, as ``--set`` takes them, or tables of them: ``{"agent.name": "gold"}`` or
    ``{"agent": {"name": "gold"}}``. They win over ``file``, a spec in TOML; that over the group that ``llm.config``
    names, that over variables of the environment, those over defaults. Without ``run_id`` it gets a name with the time
    in it. Raises ConfigError naming each field that is wrong, and the way out.
    """
    tables = of_file(Path(file)) if file else {}
    for name, value in (fields or {}).items():
        above: Tables = {}
        put(above, tuple(name.split(".")), _without_paths(value))
        tables = laid_over(tables, above)
    return complete(tables, str(file) if file else "fields")


def _without_paths(value: Any) -> Any:
    """Paths as a spec has them: text."""
    if isinstance(value, Mapping):
        return {name: _without_paths(each) for name, each in value.items()}
    return str(value) if isinstance(value, PurePath) else value


def complete(tables: Tables, source: str) -> RunRequest:
    """The request that tables come to; ``source`` is named where they are wrong. Raises ConfigError."""
    tables, env, notes = _with_group(tables)
    notes += variables.lay_under(tables)
    if not has(tables, ("agent", "name")) and has(tables, ("agent", "model")) and agent_name(tables) == "r2egym":
        notes.append("a model and no --agent: r2egym works with it")
    chosen = laid_over({}, tables)
    spec = checked(tables, source)
    named_spec = spec if spec.run_id else spec.model_copy(update={"run_id": _name(spec)})
    return RunRequest(named_spec, env, tuple(notes), chosen)


def _with_group(tables: Tables) -> tuple[Tables, dict[str, str], list[str]]:
    """The spec over the group of models that it names, the group's key, and what of the group has no effect."""
    llm = tables.get("llm")
    if not isinstance(llm, dict) or llm.get("config") is None:
        return tables, {}, []
    from swe_argo.steps.models.config_groups import read_group

    group = read_group(str(llm.get("config_file", RunSpec().llm.config_file)), str(llm["config"]))
    key = {KEY: group.key.get_secret_value()} if group.key else {}
    return laid_over(group.fields, tables), key, list(group.notes)


def _name(spec: RunSpec) -> str:
    """agent-dataset-time, made legal."""
    return make_name(agent_of(spec.agent).name, spec.dataset)


def make_name(prefix: str, dataset: str, most: int = 63) -> str:
    """prefix-dataset-time, made legal, of at most so many letters."""
    name = f"{prefix}-{Path(dataset).name.split('.')[0]}-{datetime.now(UTC):%Y%m%d-%H%M%S}".lower()
    name = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in name)[-most:].strip("-")
    return name if is_run_id(name) else f"run-{datetime.now(UTC):%Y%m%d-%H%M%S}"
