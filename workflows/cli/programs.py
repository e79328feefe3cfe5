"""A program of the steps as a command of ``swe-argo``: its options, as they are declared."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

from swe_argo.steps.contracts.programs import Program
from swe_argo.steps.entry import Flags


def add_program(app: typer.Typer, program: Program, work: Callable[[Flags], object], help_text: str) -> None:
    """Add the command ``program.name``, which hands its flags to ``work``."""

    def command(**values: Any) -> None:
        work({option.name: values[_parameter(option.name)] for option in program.options})

    parameters = []
    for option in program.options:
        said = f"{option.meaning[0].upper()}{option.meaning[1:]}."
        plain: Any = Literal[option.choices] if option.choices else option.kind
        typed: Any = plain if option.required or option.default is not None else plain | None
        flag = typer.Option(f"--{option.name}", help=said, metavar=option.metavar)
        default = inspect.Parameter.empty if option.required else option.default
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(
            inspect.Parameter(_parameter(option.name), kind, default=default, annotation=Annotated[typed, flag])
        )
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app.command(program.name, help=help_text)(command)


def _parameter(name: str) -> str:
    return name.replace("-", "_")
