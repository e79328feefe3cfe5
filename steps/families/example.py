"""An issue of the bundled dataset in the form of another family: its row, and what that family's image has."""

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
    """The two lists with ids that end at their first blank, where SWE-bench's parsers of before swebench 5 cut them."""
    return {column: list(dict.fromkeys(test.partition(" ")[0] for test in issue[column])) for column in LISTS}


class Example(Protocol):
    """What a family's module ``example`` has."""

    def make_row(self, issue: Row) -> Row:
        """The row of the family about an issue that is a SWE-bench row of ``mini``."""

    def change_image(self, testbed: Path, issue: Row, git: RunGit) -> None:
        """Make the repository of ``mini`` that of the family's image, with all that such an image knows."""


def load_example(family: str) -> Example:
    """The module of a family that has one."""
    return cast(Example, import_module(FAMILIES[family].replace(".family", ".example")))
