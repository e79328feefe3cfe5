"""Programs as values: name, flags and files, from which parsers and command lines are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Option:
    """A flag: ``--name=VALUE``, or ``--name`` alone if ``kind`` is bool."""

    name: str
    meaning: str
    kind: type = str
    default: Any = None
    required: bool = False
    repeated: bool = False
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    field: str = ""
    """Field of the spec that it sets."""


@dataclass(frozen=True)
class Program:
    """A program of the chain: ``python -m swe_argo.steps.<name>``."""

    name: str
    meaning: str
    options: tuple[Option, ...]
    writes: tuple[str, ...] = ()
    """Files in the folder ``--out`` after success."""

    def command_line(self, values: Mapping[str, object]) -> list[str]:
        """Return the flags of option name -> value, in this order; a list repeats its flag, None and False omit it.

        Raises:
            ValueError: An option is unknown, or a required one has no value.
        """
        options = {option.name: option for option in self.options}
        if unknown := values.keys() - options.keys():
            raise ValueError(f"{self.name} has no option {', '.join(sorted(unknown))}")
        if missing := [name for name, option in options.items() if option.required and values.get(name) is None]:
            raise ValueError(f"{self.name} needs {', '.join(missing)}")
        flags = []
        for name, value in values.items():
            for item in value if isinstance(value, list | tuple) else [value]:
                if item is True:
                    flags.append(f"--{name}")
                elif item is not None and item is not False:
                    flags.append(f"--{name}={item}")
        return flags
