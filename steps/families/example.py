"""Conversion of the bundled dataset's issues to other families' rows and images."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from swe_argo.steps.contracts.families import FAMILIES
from swe_argo.steps.families.family import Row
from swe_argo.steps.families.listed_tests import LISTS

RunGit = Callable[..., bytes]
"""``git(*command, stdin=b"")`` runs git in the repository and returns its output; commits are reproducible."""


def cut_ids(issue: Row) -> dict[str, list[str]]:
    """Return the two lists with ids cut at their first blank, as SWE-bench's parsers before swebench 5 did."""
    return {column: list(dict.fromkeys(test.partition(" ")[0] for test in issue[column])) for column in LISTS}


class Example(Protocol):
    """The interface of a family's module ``example``."""

    def make_row(self, issue: Row) -> Row:
        """Return the family's row for an issue, given as a SWE-bench row of ``mini``."""

    def change_image(self, testbed: Path, issue: Row, git: RunGit) -> None:
        """Change the repository of ``mini`` to the content of the family's image."""


def load_example(family: str) -> Example:
    """Return the ``example`` module of a family that has one."""
    return cast(Example, import_module(FAMILIES[family].replace(".family", ".example")))
