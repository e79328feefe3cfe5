"""What a field of a model says about itself: the docstring below it, read from the source when somebody asks.

pydantic's ``use_attribute_docstrings`` reads the source of every model whenever it is imported; a step would pay for
that at each start, and only ``--help`` shows it.
"""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from pathlib import Path

from pydantic import BaseModel


def docstring_of(model: type[BaseModel], field: str) -> str:
    """That of the nearest class that has one; empty where none has."""
    for each in model.__mro__:
        if issubclass(each, BaseModel) and (said := _read(each.__module__).get((each.__qualname__, field))):
            return said
    return ""


@cache
def _read(module: str) -> dict[tuple[str, str], str]:
    """(class, field) -> its docstring, of the classes at the top of a module."""
    file = sys.modules[module].__file__
    assert file is not None
    found = {}
    for each in ast.parse(Path(file).read_bytes()).body:
        if not isinstance(each, ast.ClassDef):
            continue
        for field, said in zip(each.body, each.body[1:], strict=False):
            match field, said:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[each.name, name] = inspect.cleandoc(text)
    return found
