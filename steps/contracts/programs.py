"""A program as a value: its name, flags and files; its parser and every command line that starts it come from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Option:
    """A flag: ``--name=VALUE``, or ``--name`` alone where ``kind`` is bool."""

    name: str
    meaning: str
    kind: type = str
    default: Any = None
    required: bool = False
    repeated: bool = False
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    field: str = ""
    """Of the spec, which it sets."""


@dataclass(frozen=True)
class Program:
    """``python -m swe_argo.steps.<name>``."""

    name: str
    meaning: str
    options: tuple[Option, ...]
    writes: tuple[str, ...] = ()
    """Files that are in the folder ``--out`` when it has succeeded."""

    def command_line(self, values: Mapping[str, object]) -> list[str]:
        """Option name -> value as flags, in this order; a list repeats its flag, None and False leave it out.

        Raises ValueError: no such option, or a required one without a value.
        """
        options = {option.name: option for option in self.options}
        if unknown := values.keys() - options.keys():
            raise ValueError(f"{self.name} has no option {', '.join(sorted(unknown))}")
        if missing := [name for name, option in options.items() if option.required and values.get(name) is None]:
            raise ValueError(f"{self.name} needs {', '.join(missing)}")
        flags = []
        for name, value in values.items():
            for each in value if isinstance(value, list | tuple) else [value]:
                if each is True:
                    flags.append(f"--{name}")
                elif each is not None and each is not False:
                    flags.append(f"--{name}={each}")
        return flags
