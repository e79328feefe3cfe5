"""Answers: the values that tests get for other inputs, and whether every correct solution gives them."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from swe_argo.steps.grading.twins.sites import Site

_LARGEST = 2_000
"""Longer expected values are not used."""


_FREE_CHOICE = re.compile(r"\s\s|[^\S ]|^\s|\s$|0x[0-9a-fA-F]{5,}")
"""Whitespace and addresses, in which correct solutions differ."""


def is_alike(value: object, original: object) -> bool:
    """Return whether a value is of the original's type, and positive, negative or empty as the original is.

    Answers to inputs that are empty or out of range differ between correct solutions.
    """
    if type(value) is not type(original):
        return False
    if isinstance(value, int | float) and isinstance(original, int | float) and not isinstance(value, bool):
        return (value > 0, value < 0) == (original > 0, original < 0)
    return not isinstance(value, str | bytes | list | tuple | dict | set) or bool(value) == bool(original)


def has_one_answer(value: object, original: object) -> bool:
    """Return whether every correct solution gives this value, as far as its kind shows.

    At least three correct solutions of generated instances agreed on each of these kinds. No other kind was tested.

    Args:
        value: The value that the reference patch returned.
        original: The value that the test expects for its own input.
    """
    if not is_alike(value, original) or len(repr(value)) > _LARGEST:
        return False
    match value, original:
        case str(), _:
            return not _FREE_CHOICE.search(value)
        case ((list() | tuple()), (list() | tuple())):
            return all(any(has_one_answer(item, other) for other in original) for item in value)
        case dict(), dict():
            return has_one_answer([*value], [*original]) and has_one_answer([*value.values()], [*original.values()])
    return type(value) is int


def write_recorder(site: Site, mark: str) -> str:
    """Return an expression that equals nothing, and prints ``mark`` and the value it is compared with.

    It prints at once and when the process ends: some runners show no output of tests, others end processes early.
    """
    line = f"' {mark} ' + __import__('json').dumps(b.repr(other))"
    prints = "[b.print(line, flush=True), __import__('atexit').register(b.print, line)]"
    method = f"lambda self, other: (lambda line: {prints} is None)({line})"
    recorder = f"b.type('Recorder', (), {{'__eq__': {method}, '__hash__': lambda self: 0}})()"
    return keep_lines(f"(lambda b: {recorder})(__import__('builtins'))", site)


def read_records(log: bytes, mark: str) -> list[Any]:
    """Return the different values that a recorder with this mark printed; ``...`` for all but plain literals."""
    printed = re.findall(rb"%s (\"(?:[^\"\\\n]|\\.)*\")" % mark.encode(), log)
    return [_read_literal(text) for text in sorted(set(printed))]


def _read_literal(line: bytes) -> Any:
    """Return the value of which a recorder printed the ``repr`` as JSON; ``...`` if it is no plain literal."""
    try:
        text = json.loads(line)
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ...
    return value if repr(value) == text else ...


def keep_lines(text: str, site: Site) -> str:
    """Return an expression with as many line ends as the site, so that the lines below keep their numbers."""
    ends = site.text.count("\n")
    return f"({text}{ends * chr(10)})" if ends else text
