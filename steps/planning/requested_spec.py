"""The spec of a run from an engine's flags, within the engine's limits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.chain import PLAN
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.spec_fields import fields, replace_values
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.planning.submitted_spec import refuse_local
from swe_argo.steps.spec_parsing import (
    Tables,
    check_spec,
    current_name,
    merge_tables,
    of_text,
    put_item,
    read_spec_file,
    set_implied_fields,
)

OVERRIDING_FIELDS = ("run_id", "store")
"""Fields whose flags override the spec, because an engine sets them. Other flags only fill gaps in the spec."""


def read_spec(flags: Mapping[str, Any]) -> RunSpec:
    """Return the checked spec of plan's flags.

    Later ones win: fields, --spec, --spec-text, then run id, store and --set. With --submitted, the spec may not name
    files of this machine. Raises ConfigError if it is wrong.
    """
    defaults: Tables = {}
    overrides: Tables = {}
    for option in PLAN.options:
        if option.field and flags[option.name]:
            put_item(
                overrides if option.field in OVERRIDING_FIELDS else defaults, f"{option.field}={flags[option.name]}"
            )
    for item in flags["set"]:
        put_item(overrides, item)
    spec_tables = merge_tables(
        read_spec_file(flags["spec"]) if flags["spec"] else {}, of_text(flags["spec-text"], "spec")
    )
    set_implied_fields(spec_tables)  # an agent that the fields imply counts as set
    admit = partial(refuse_local, plugins=flags["plugins"].split(",")) if flags["submitted"] else None
    return check_spec(merge_tables(merge_tables(defaults, spec_tables), overrides), "spec", admit)


def fit_to_limits(spec: RunSpec, limits: Mapping[str, float]) -> RunSpec:
    """Return the spec within ``limits`` (field -> the most that the engine allows).

    Raises ConfigError if a field exceeds it.
    An agent timeout that was not changed from its default is lowered to the limit instead.
    """
    for field in fields():
        value, limit = field.of(spec), limits.get(field.name)
        if limit is None or value is None or value <= limit:
            continue
        if field.name != "agent.timeout_s" or value != agent_of(spec.agent).defaults.timeout_s:
            raise ConfigError(f"{value:g} is more than this pipeline's limit of {limit:g}", field=field.name)
        spec = replace_values(spec, {field.name: float(limit)})
    return spec


def refuse_fields(spec: RunSpec, names: Collection[str]) -> None:
    """Raise ConfigError if the spec sets a field that the engine does not support."""
    default = RunSpec()
    for field in fields():
        if field.name in map(current_name, names) and field.of(spec) != field.of(default):
            raise ConfigError("not supported on Argo; use it with `swe-argo run`", field=field.name)
