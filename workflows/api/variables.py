"""Environment variables and the spec fields that they set, also as the table of the docs.

Precedence: flags > RUN.toml > model group > variables > defaults.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from swe_argo.steps.contracts.backends import BACKENDS
from swe_argo.steps.contracts.spec_fields import fields
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.reports.text.formatting import listing
from swe_argo.steps.settings import variables
from swe_argo.steps.spec_parsing import Tables, asks_model, checked, has, put
from swe_argo.workflows.parameters import FIELD_PARAMETERS

PREFIX = "EVAL_"
"""Prefix of the evaluation's variables: an unknown one is a typing error or has no effect."""
RUNTIMES = {name: name for name in BACKENDS} | {"eventstream": "docker"}
"""OpenHands' runtimes -> backends."""
TRUE, FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def _truth(text: str) -> bool:
    word = text.lower()
    if word not in TRUE + FALSE:
        raise ValueError("is neither true nor false")
    return word in TRUE


def _not(text: str) -> bool:
    return not _truth(text)


def _ids(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _backend(text: str) -> str:
    word = text.lower()
    if word not in RUNTIMES:
        raise ValueError(f"is no place for sandboxes here; {listing(sorted(BACKENDS))} are, also as --backend")
    return RUNTIMES[word]


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("is no whole number") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("is no number") from None


@dataclass(frozen=True)
class Variable:
    """A variable, its spec field and the parser of its value. Without a field, ``meaning`` describes its effect."""

    name: str
    field: str = ""
    read: Callable[[str], Any] = str
    meaning: str = ""
    on_argo: str | None = None
    """Parameter of the Workflow, if it is not that of the field; empty: none."""

    @property
    def parameter(self) -> str:
        """The parameter of the Workflow on Argo; ``spec`` (TOML) for fields without a parameter of their own."""
        if self.on_argo is not None:
            return self.on_argo
        parameter = FIELD_PARAMETERS.get(self.field)
        return parameter.name if parameter else "spec"

    @property
    def path(self) -> tuple[str, ...]:
        """Path of the field in the spec."""
        return tuple(self.field.split("."))


VARIABLES = (
    Variable("EVAL_OUTPUT_PATH", "store", on_argo=""),
    Variable("EVAL_MAX_RETRIES", "retries", _integer),
    Variable("EVAL_SKIP_MAXIMUM_RETRIES_EXCEEDED", "fail_fast", _not, "the other way round"),
    Variable(
        "EVAL_SAVE_ERROR_LOGS", "save_error_logs", _truth, "on Argo all logs are kept, in `logs/` of the bucket", ""
    ),
    Variable("EVAL_SAVE_CHECKPOINTS", "save_checkpoints", _truth),
    Variable(
        "LOG_LEVEL",
        meaning="what steps print, and failed tries keep; DEBUG: a line a model call and a command",
        on_argo="log-level",
    ),
    Variable("RUNTIME", "sandbox.backend", _backend, ", ".join(f"`{name}`" for name in sorted(BACKENDS))),
    Variable("ITERATIVE_EVAL_MODE", "agent.iterative", _truth),
    Variable("ITERATIVE_EVAL_MODE_MAX_ATTEMPTS", "agent.iterative_max_attempts", _integer),
    Variable("USE_HINT_TEXT", "agent.hints", _truth),
    Variable("INSTRUCTION_TEMPLATE_NAME", "agent.instruction_template"),
    Variable("DEFAULT_RUNTIME_RESOURCE_FACTOR", "sandbox.resource_factor", _number),
    Variable("SKIP_IDS", "select.exclude", _ids, "ids with commas between"),
    Variable("START_IDX", "select.start_idx", _integer),
    Variable("K", "select.k", _integer),
    Variable("LLM_BASE_URL", "llm.base_url"),
    Variable("OPENAI_API_KEY", meaning="the endpoint's key, used and never stored", on_argo=""),
    Variable("LLM_API_KEY", meaning="the same; it wins, and a group's `api_key` over both", on_argo=""),
    Variable("SWE_ARGO_STORE", "store", meaning="wins over `EVAL_OUTPUT_PATH`", on_argo=""),
)
"""All variables; later ones take precedence over earlier ones."""
_MODELS_ONLY = ("agent", "llm")
"""Tables that have no effect if the agent asks no model."""


def lay_under(tables: Tables) -> list[str]:
    """Set the fields that the environment sets and ``tables`` does not; return notes for the user.

    Raises ConfigError that names the variable. An overridden variable is not parsed.
    """
    environment = variables((each.name for each in VARIABLES), PREFIX)
    settings_found: dict[str, tuple[Variable, Any]] = {}
    for each in VARIABLES:
        if not each.field or each.name not in environment or has(tables, each.path):
            continue
        if each.path[0] in _MODELS_ONLY and not asks_model(tables):
            continue
        settings_found[each.field] = each, _value(each, environment[each.name])
    for each, value in settings_found.values():
        put(tables, each.path, value)
    lines = [f"{each.name} ({field} = {value})" for field, (each, value) in settings_found.items()]
    return [*([f"from the environment: {', '.join(lines)}"] if lines else []), *_unknown(environment)]


def _value(variable: Variable, text: str) -> Any:
    try:
        value = variable.read(text.strip())
    except ValueError as error:
        raise ConfigError(f"{text!r} {error}", field=variable.name) from None
    alone: Tables = {}
    put(alone, variable.path, value)
    checked(alone, variable.name)
    return value


def _unknown(environment: dict[str, str]) -> list[str]:
    names = [each.name for each in VARIABLES]
    notes = []
    for name in sorted(set(environment) - set(names)):
        near = difflib.get_close_matches(name, names, 1, 0.6)
        notes.append(f"nothing reads {name}" + (f"; did you mean {near[0]}?" if near else ""))
    return notes


def table() -> str:
    """Return the docs' table, in Markdown."""
    by_name = {field.name: field for field in fields()}
    lines = ["| variable | sets | flag | parameter on Argo |", "|---|---|---|---|"]
    for each in VARIABLES:
        sets = f"`{each.field}`" if each.field else each.meaning
        if each.field and each.meaning:
            sets += f": {each.meaning}"
        flag = f"`--{by_name[each.field].option}`" if each.field else ""
        lines.append(f"| `{each.name}` | {sets} | {flag} | {f'`{each.parameter}`' if each.parameter else ''} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
