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
from swe_argo.steps.spec_parsing import Tables, checked, current_name, follow, laid_over, of_file, of_text, put_item

STRONGEST = ("run_id", "store")
"""Fields whose flags take precedence over the spec: an engine sets them. Other flags only fill gaps in the spec."""


def read_spec(flags: Mapping[str, Any]) -> RunSpec:
    """Return the checked spec of plan's flags: fields < --spec < --spec-text < run id, store and --set.

    With --submitted it names no file of this machine. Raises ConfigError.
    """
    below: Tables = {}
    above: Tables = {}
    for option in PLAN.options:
        if option.field and flags[option.name]:
            put_item(above if option.field in STRONGEST else below, f"{option.field}={flags[option.name]}")
    for item in flags["set"]:
        put_item(above, item)
    stated = laid_over(of_file(flags["spec"]) if flags["spec"] else {}, of_text(flags["spec-text"], "spec"))
    follow(stated)  # an agent that follows from the given fields counts as given
    admit = partial(refuse_local, plugins=flags["plugins"].split(",")) if flags["submitted"] else None
    return checked(laid_over(laid_over(below, stated), above), "spec", admit)


def fit_to_limits(spec: RunSpec, limits: Mapping[str, float]) -> RunSpec:
    """Raise ConfigError for amounts above ``limits``: field -> the most that the engine allows.

    An agent's timeout is lowered to the limit if it is the project's default.
    """
    for field in fields():
        value, most = field.of(spec), limits.get(field.name)
        if most is None or value is None or value <= most:
            continue
        if field.name != "agent.timeout_s" or value != agent_of(spec.agent).defaults.timeout_s:
            raise ConfigError(f"{value:g} is more than this pipeline allows: at most {most:g}", field=field.name)
        spec = replace_values(spec, {field.name: float(most)})
    return spec


def refuse_fields(spec: RunSpec, names: Collection[str]) -> None:
    """Raise ConfigError if the spec sets a field that the engine does not support."""
    usual = RunSpec()
    for field in fields():
        if field.name in map(current_name, names) and field.of(spec) != field.of(usual):
            raise ConfigError("only swe-argo run heeds this, the pipeline does not: leave it out", field=field.name)
