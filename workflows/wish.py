"""A RunSpec from a command line: a TOML file, flags, ``--set``, or all of them; later ones win, in that order."""

from __future__ import annotations

import inspect
import types
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from steps.contracts.ids import is_run_id
from steps.contracts.run import RunSpec
from steps.settings import settings
from steps.wish import Wished, checked, fields, of_file, put, put_item

PANELS = {"": "What", "select": "Which instances", "agent": "Agent", "sandbox": "Sandboxes", "grading": "Grading"}


def parameters() -> list[inspect.Parameter]:
    """One command-line option a field, its help the field's docstring; unset is None, so that a file's value holds."""
    return [
        inspect.Parameter(
            _parameter(field),
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[_type(field.info), _option(field)],
        )
        for field in fields()
    ]


def _parameter(field: Wished) -> str:
    """Its Python name: agent.max_steps -> agent_max_steps."""
    return "_".join(field.path)


def _option(field: Wished) -> Any:
    default = field.info.get_default(call_default_factory=True)
    text = " ".join((field.info.description or "").split())
    if default not in (None, [], False):
        text += f" [dim]\\[{default}][/dim]"
    if aliases := [name for name in field.flag.names[1:] if len(name) > 2]:
        text += f" [dim]Also {', '.join(aliases)}.[/dim]"
    names = [field.flag.names[0], *(name for name in field.flag.names if len(name) == 2)]
    panel = PANELS[field.path[0] if len(field.path) > 1 else ""]
    return typer.Option(*names, help=text, show_default=False, rich_help_panel=panel)


def our_names(arguments: list[str]) -> list[str]:
    """Arguments with other tools' flags in ours: they are accepted, but kept out of the first column of ``--help``."""
    ours = {alias: field.flag.names[0] for field in fields() for alias in field.flag.names[1:] if len(alias) > 2}
    words = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        words.append(f"{ours.get(name, name)}{equals}{value}")
    return words


def _type(info: FieldInfo) -> Any:
    """What the option parses to; choices stay strings, so that RunSpec's own message names field and values."""
    kind = info.annotation
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(part for part in get_args(kind) if part is not type(None))
    if get_origin(kind) is Literal:
        kind = str
    return Optional[kind]  # noqa: UP045 - built from a value, not written down


def read(file: Path | None, flags: dict[str, Any], sets: list[str]) -> RunSpec:
    """The whole wish, checked. Raises ConfigError naming file, field and the way out."""
    wish = of_file(file) if file else {}
    for field in fields():
        value = flags.get(_parameter(field))
        if value not in (None, []):
            put(wish, field.path, value)
    for item in sets:
        put_item(wish, item)
    if settings().store and "store" not in wish:
        wish["store"] = settings().store
    spec = checked(wish, str(file) if file else "flags")
    return spec if spec.run_id else spec.model_copy(update={"run_id": _name(spec)})


def _name(spec: RunSpec) -> str:
    """agent-dataset-time, made legal."""
    dataset = Path(spec.dataset).name.split(".")[0]
    name = f"{spec.agent.name}-{dataset}-{datetime.now(UTC):%Y%m%d-%H%M%S}".lower()
    name = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in name)[-63:].strip("-")
    return name if is_run_id(name) else f"run-{datetime.now(UTC):%Y%m%d-%H%M%S}"
