"""A RunSpec from what a person wrote: a TOML file, flags, ``--set``, or all of them; later ones win, in that order."""

from __future__ import annotations

import difflib
import inspect
import tomllib
import types
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Union, get_args, get_origin

import typer
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from steps.contracts.ids import is_run_id
from steps.contracts.run import Flag, RunSpec
from steps.errors import ConfigError
from steps.settings import settings


@dataclass(frozen=True)
class Wished:
    """A field of RunSpec as the command line has it: ``path`` is its place in TOML, ``parameter`` its Python name."""

    path: tuple[str, ...]
    info: FieldInfo
    flag: Flag

    @property
    def parameter(self) -> str:
        """agent.max_steps -> agent_max_steps."""
        return "_".join(self.path)


def fields(table: type[BaseModel] = RunSpec, path: tuple[str, ...] = ()) -> Iterator[Wished]:
    """Every field of the wish, in the order of its declaration."""
    for name, info in table.model_fields.items():
        flag = next((mark for mark in info.metadata if isinstance(mark, Flag)), None)
        if flag:
            yield Wished((*path, name), info, flag)
        elif isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from fields(info.annotation, (*path, name))


PANELS = {"": "What", "select": "Which instances", "agent": "Agent", "sandbox": "Sandboxes", "grading": "Grading"}


def parameters() -> list[inspect.Parameter]:
    """One command-line option a field, its help the field's docstring; unset is None, so that a file's value holds."""
    return [
        inspect.Parameter(
            field.parameter,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[_type(field.info), _option(field)],
        )
        for field in fields()
    ]


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
    wish = _toml(file) if file else {}
    source = str(file) if file else "flags"
    for field in fields():
        value = flags.get(field.parameter)
        if value not in (None, []):
            _place(wish, field.path, value)
    for item in sets:
        name, equals, value = item.partition("=")
        if not equals:
            raise ConfigError(f"{item!r} is not NAME=VALUE", field="--set")
        _place(wish, tuple(name.strip().split(".")), _value(value))
    if settings().store and "store" not in wish:
        wish["store"] = settings().store
    _follow_predictions(wish)
    try:
        spec = RunSpec.model_validate(wish)
    except ValidationError as error:
        raise ConfigError(_explain(error, source)) from None
    return spec if spec.run_id else spec.model_copy(update={"run_id": _name(spec)})


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no file {file}") from None
    except IsADirectoryError:
        raise ConfigError(f"{file} is a folder, not a TOML file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None


def _place(wish: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    table = wish
    for name in path[:-1]:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{name} is a table, not a value", field=".".join(path))
    table[path[-1]] = value


def _value(text: str) -> Any:
    """A TOML value, or the text itself where it is none: ``--set agent.name=gold`` needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def _follow_predictions(wish: dict[str, Any]) -> None:
    """A predictions file without an agent means agent 'given'; the word gold means what it means in swebench."""
    agent = wish.get("agent")
    if not isinstance(agent, dict) or "name" in agent:
        return
    if agent.get("predictions") == "gold":
        del agent["predictions"]
        agent["name"] = "gold"
    elif "predictions" in agent:
        agent["name"] = "given"
    elif "trajectories" in agent:
        agent["name"] = "replay"


def _explain(error: ValidationError, source: str) -> str:
    known = [".".join(field.path) for field in fields()]
    lines = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"] if not isinstance(part, int))
        if problem["type"] == "extra_forbidden":
            near = difflib.get_close_matches(name, known, 1, 0.5)
            lines.append(f"there is no field {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        else:
            message = problem["msg"].removeprefix("Value error, ")
            message = message[0].lower() + message[1:]
            lines.append(f"{name}: {message}" + ("" if "input" not in problem else f", not {problem['input']!r}"))
    return f"{source}: " + "; ".join(lines)


def _name(spec: RunSpec) -> str:
    """agent-dataset-time, made legal."""
    dataset = Path(spec.dataset).name.split(".")[0]
    name = f"{spec.agent.name}-{dataset}-{datetime.now(UTC):%Y%m%d-%H%M%S}".lower()
    name = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in name)[-63:].strip("-")
    return name if is_run_id(name) else f"run-{datetime.now(UTC):%Y%m%d-%H%M%S}"
