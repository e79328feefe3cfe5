"""An issue of the bundled dataset in the form of another family: its row, and the contents of that family's image."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from swe_argo.steps.contracts.families import FAMILIES
from swe_argo.steps.families.family import Row
from swe_argo.steps.families.listed_tests import LISTS

RunGit = Callable[..., bytes]
"""``git(*command, stdin=b"")`` in the repository, its standard output; commits are the same on every machine."""


def cut_ids(issue: Row) -> dict[str, list[str]]:
    """Return the two lists with ids cut at their first blank, as SWE-bench's parsers before swebench 5 cut them."""
    return {column: list(dict.fromkeys(test.partition(" ")[0] for test in issue[column])) for column in LISTS}


class Example(Protocol):
    """The interface of a family's module ``example``."""

    def make_row(self, issue: Row) -> Row:
        """Return the family's row for an issue, given as a SWE-bench row of ``mini``."""

    def change_image(self, testbed: Path, issue: Row, git: RunGit) -> None:
        """Turn the repository of ``mini`` into that of the family's image, with everything that such an image holds."""


def load_example(family: str) -> Example:
    """Return the ``example`` module of a family that has one."""
    return cast(Example, import_module(FAMILIES[family].replace(".family", ".example")))
