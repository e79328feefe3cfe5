"""Docstrings of model fields, read from the source on demand.

Only ``--help`` shows them. pydantic's ``use_attribute_docstrings`` would read every model's source at import, and so
slow down the start of every step.
"""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from pathlib import Path

from pydantic import BaseModel


def docstring_of(model: type[BaseModel], field: str) -> str:
    """Return the docstring of a field from the nearest class that has one; empty if none has."""
    for base in model.__mro__:
        if issubclass(base, BaseModel) and (text := _read(base.__module__).get((base.__qualname__, field))):
            return text
    return ""


@cache
def _read(module: str) -> dict[tuple[str, str], str]:
    """Return (class, field) -> docstring for the top-level classes of a module."""
    file = sys.modules[module].__file__
    assert file is not None
    docstrings = {}
    for node in ast.parse(Path(file).read_bytes()).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for field, docstring in zip(node.body, node.body[1:], strict=False):
            match field, docstring:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docstrings[node.name, name] = inspect.cleandoc(text)
    return docstrings
