"""A spec from a command line: variables, a group of models, a TOML file, flags, ``--set``; later ones win."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from swe_argo.steps.contracts.agents import Defaults
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.spec_fields import SpecField, fields
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.spec_parsing import of_file, put, put_item
from swe_argo.workflows.api.request import RunRequest, complete
from swe_argo.workflows.cli.completions import OF_FIELDS

_GROUP_OF_TABLE = {
    "": "run",
    "select": "instances",
    "agent": "agent",
    "llm": "model",
    "sandbox": "sandbox",
    "grading": "grading",
}
"""Table of a RUN.toml -> the group of its flags in the help."""


def parameters(has: Callable[[SpecField], bool] = lambda _: True) -> list[inspect.Parameter]:
    """One command-line option a field, its help the field's docstring; unset is None, so that a file's value holds.

    ``has``: which fields the command has.
    """
    return [
        inspect.Parameter(
            _parameter(each),
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[_type(each.info), _option(each)],
        )
        for each in fields()
        if has(each)
    ]


_OF_AGENTS = frozenset(
    {
        *("dataset", "attempts", "max_cost_usd", "canary", "stop_on_canary"),
        *("grading.confirm", "select.skip_not_gradeable"),
    }
)


def is_of_dataset(field: SpecField) -> bool:
    """Whether a field is a flag of ``validate``, which asks nothing of an agent."""
    return field.path[0] not in ("agent", "llm") and field.name not in _OF_AGENTS


_OF_ROLLOUTS = frozenset(
    {
        *("split", "revision", "family", "answers", "retries"),
        *(f"agent.{name}" for name in ("use_fn_calling", "scaffold_fidelity")),
        *(f"agent.{name}" for name in ("instruction_template", "scaffold_words")),
        *(f"agent.{name}" for name in ("max_steps", "max_steps_absolute", "max_token_limit", "max_total_tokens")),
        *(f"agent.{name}" for name in ("command_timeout_s", "commands_timeout_s", "timeout_s")),
        *(f"agent.{name}" for name in ("max_observation", "max_malformed")),
    }
)


def is_of_rollouts(field: SpecField) -> bool:
    """Whether a field is a flag of ``export --format verl``: another program trains, and asks its own model."""
    return field.path[0] in ("select", "sandbox", "grading") or field.name in _OF_ROLLOUTS


def _table(each: SpecField) -> str:
    return each.path[0] if len(each.path) > 1 else ""


def _parameter(each: SpecField) -> str:
    """Its Python name: agent.max_steps -> agent_max_steps."""
    return "_".join(each.path)


def _option(each: SpecField) -> Any:
    default = each.info.get_default(call_default_factory=True)
    text = " ".join(each.docstring.split())
    own = {"agent": Defaults().agent, "llm": Defaults().llm}.get(_table(each), {})  # they differ from agent to agent
    if default is not False and default not in (None, []) and each.path[-1] not in own:
        text += f" [{default}]"
    if aliases := [name for name in each.flag.names[1:] if len(name) > 2]:
        text += f" Also {', '.join(aliases)}."
    names = [each.flag.names[0], *(name for name in each.flag.names if len(name) == 2)]
    return typer.Option(
        *names,
        help=f"{each.name}  {text}",
        show_default=False,
        rich_help_panel=_GROUP_OF_TABLE[_table(each)],
        autocompletion=OF_FIELDS.get(each.name),
    )


def _type(info: FieldInfo) -> Any:
    """What the option parses to; choices and listed words stay text, for RunSpec's message to name what is wrong."""
    kind = info.annotation
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(part for part in get_args(kind) if part is not type(None))
    if get_origin(kind) is Annotated:  # RunSpec checks what the mark is about
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        kind = str
    if get_origin(kind) is list:
        kind = list[str]
    return Optional[kind]  # noqa: UP045 - built from a value, not written down


def read(file: Path | None, flags: dict[str, Any], sets: list[str]) -> RunSpec:
    """The spec alone, without what goes with it."""
    return read_request(file, flags, sets).spec


def read_request(file: Path | None, flags: dict[str, Any], sets: list[str]) -> RunRequest:
    """The whole spec, checked. Raises ConfigError naming file, field and the way out."""
    tables = of_file(file) if file else {}
    if tables.get("redo"):
        raise _misplaced_redo(str(file))
    for each in fields():
        value = flags.get(_parameter(each))
        if value not in (None, []):
            put(tables, each.path, _listed(value) if isinstance(value, list) else value)
    for item in sets:
        if item.partition("=")[0].strip() == "redo":
            raise _misplaced_redo("--set")
        put_item(tables, item)
    return complete(tables, str(file) if file else "flags")


def _misplaced_redo(source: str) -> ConfigError:
    """It is of one command: where it stays, the same units are done again, and paid for, whenever the run goes on."""
    return ConfigError(f"not in {source}: give it on the command line, as --redo WORD", field="redo")


def _listed(values: list[str]) -> list[str]:
    """Repeated flags, and lists with commas."""
    return [word.strip() for value in values for word in value.split(",") if word.strip()]
