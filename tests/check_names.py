"""Checks of names: ``python -m tests.check_names`` prints each one to change.

A class name exists once in steps/ and workflows/. No function, argument, variable or attribute has a name in BANNED.
Test names have at most LONGEST characters, and their median at most MEDIAN.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.paths import ROOT

ROOMS = ("steps", "workflows")
FOLDERS = (*ROOMS, "bench", "charts", "cluster", "images", "templates", "tests")
DATA = ROOT / "steps/datasets/mini/data"
"""Repositories under test; their code is not ours."""
BANNED = {"asked", "begun", "brought", "done", "each", "found", "given", "gone_on", "got", "held", "kept", "known"}
BANNED |= {"made", "meant", "named", "needed", "said", "seen", "sent", "shown", "so", "taken", "there", "told", "tried"}
BANNED |= {"wanted", "what", "who", "whose"}
"""Words that name nothing; the noun does: ``message``, ``rows``, ``request``, ``path``, ``result``, ``instance``."""
LONGEST, MEDIAN = 60, 36


class BoundName(NamedTuple):
    """A name that a file binds. ``place``: ``file:line``."""

    name: str
    place: str
    is_class: bool = False


def bound_names(root: Path) -> Iterator[BoundName]:
    """Yield the names of classes, functions, arguments, variables and attributes below ``root``."""
    for file in sorted(file for folder in FOLDERS for file in (root / folder).rglob("*.py")):
        if file.is_relative_to(DATA):
            continue
        path = file.relative_to(root)
        for node in ast.walk(ast.parse(file.read_bytes())):
            match node:
                case ast.ClassDef(name=name):
                    yield BoundName(name, f"{path}:{node.lineno}", is_class=True)
                case (
                    ast.FunctionDef(name=name)
                    | ast.AsyncFunctionDef(name=name)
                    | ast.arg(arg=name)
                    | ast.Name(id=name, ctx=ast.Store())
                    | ast.Attribute(attr=name, ctx=ast.Store())
                ):
                    yield BoundName(name, f"{path}:{node.lineno}")


def find_problems(root: Path) -> list[str]:
    """Return a line for each name below ``root`` to change."""
    names = list(bound_names(root))
    classes = defaultdict(list)
    for name in names:
        if name.is_class and name.place.startswith(ROOMS):
            classes[name.name].append(name.place)
    twice = [f"class {name} exists more than once: {', '.join(where)}" for name, where in classes.items() if where[1:]]
    banned = [f"{name.place}: {name.name} is no name for a thing" for name in names if name.name.strip("_") in BANNED]
    tests = [name for name in names if name.name.startswith("test_") and name.place.startswith("tests/")]
    long = [
        f"{test.place}: {test.name} has more than {LONGEST} characters" for test in tests if len(test.name) > LONGEST
    ]
    median = statistics.median(len(test.name) for test in tests) if tests else 0
    longer = [f"test names have {median:g} characters in the median, more than {MEDIAN}"] if median > MEDIAN else []
    return twice + banned + long + longer


def main() -> int:
    """Print the problems and return 1 if there are any, else 0."""
    problems = find_problems(ROOT)
    sys.stderr.writelines(f"{problem}\n" for problem in problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
