"""Outline of a Python file: its text without function bodies."""

from __future__ import annotations

import ast
import warnings

MIN_BODY_LINES = 4
"""Shorter bodies are kept (R2E-Gym)."""
MIN_DOCSTRING_LINES = 5
"""Docstrings of classes with fewer lines are kept."""
MOST_CHARACTERS = 300_000
"""Longest text to parse: a syntax tree takes a hundred times its memory, and 10 us a line."""


def outline(text: str) -> list[tuple[int, str]] | None:
    """Return the remaining lines with their numbers from 1; each gap has a note in its first line.

    Returns None for text that is too long or not valid Python for this interpreter.
    """
    if len(text) > MOST_CHARACTERS:
        return None
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    lines = text.split("\n")
    lines_shown: list[tuple[int, str]] = []
    left_out = sorted(_long_parts(tree))
    at, number = 0, 1
    while number <= len(lines):
        while at < len(left_out) and left_out[at][1] < number:  # skip parts inside one already left out
            at += 1
        if at < len(left_out) and left_out[at][0] <= number:
            first, last = left_out[at]
            lines_shown.append((number, f"... lines {max(first, number)}-{last} are left out ..."))
            number = last + 1
        else:
            lines_shown.append((number, lines[number - 1].rstrip("\r")))
            number += 1
    return lines_shown


def _long_parts(tree: ast.Module) -> list[tuple[int, int]]:
    """Return first and last lines of long function bodies and of long class docstrings' insides; they may nest."""
    gaps = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first, last = node.body[0].lineno, node.body[-1].end_lineno or 0
            if last - first + 1 >= MIN_BODY_LINES:
                gaps.append((first, last))
        elif isinstance(node, ast.ClassDef) and ast.get_docstring(node, clean=False) is not None:
            first, last = node.body[0].lineno, node.body[0].end_lineno or 0
            if last - first + 1 >= MIN_DOCSTRING_LINES:
                gaps.append((first + 1, last - 1))
    return gaps
