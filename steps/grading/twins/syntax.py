"""Syntax of Python sources: literals and their places, and the tables of parametrized tests."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Span = tuple[int, int]
"""A half-open range of bytes in a source file."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
DISPLAYS = (ast.List, ast.Tuple, ast.Set, ast.Dict)


def parse_quietly(source: str | bytes) -> ast.Module | None:
    """Return the syntax tree, or None if the source does not parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def decode_source(source: bytes) -> tuple[str, str]:
    """Return the text of a source file, line ends as they are, and its encoding."""
    encoding = read_encoding(source)
    return source.decode(encoding), encoding


def read_encoding(source: bytes) -> str:
    """Return the encoding of a source file.

    Raises:
        ValueError: The encoding is unknown, or a character of it may take several bytes (other than UTF-8).
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    except SyntaxError as error:
        raise ValueError(str(error)) from error
    if not re.fullmatch(r"utf-8(-sig)?|ascii|us-ascii|iso-?8859-\d+|latin-1|cp12\d\d|windows-12\d\d|koi8-r", encoding):
        raise ValueError(f"encoding {encoding} is not supported")
    return "utf-8" if encoding == "utf-8-sig" else encoding


def iterate_literals(node: ast.AST) -> Iterator[tuple[ast.expr, Any]]:
    """Yield every constant below ``node`` with its value; a sign belongs to its number."""
    if isinstance(node, ast.Constant):
        yield node, node.value
    elif is_signed_number(node):
        yield node, ast.literal_eval(node)  # type: ignore[misc]
    else:
        for child in ast.iter_child_nodes(node):
            yield from iterate_literals(child)


def iterate_values(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the constants and literal displays of a node; of a function, without those of its decorators."""
    for part in (node.args, *node.body) if isinstance(node, Function) else (node,):
        for literal, _ in iterate_literals(part):
            yield literal
        for descendant in ast.walk(part):
            if isinstance(descendant, DISPLAYS) and is_literal(descendant):
                yield descendant


def is_signed_number(node: ast.AST) -> bool:
    """Return whether a node is a number with a sign."""
    return (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub | ast.UAdd)
        and isinstance(node.operand, ast.Constant)
        and isinstance(node.operand.value, int | float | complex)
        and not isinstance(node.operand.value, bool)
    )


def is_string(node: ast.expr) -> bool:
    """Return whether the node is a string or bytes literal, or a sum of them."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return is_string(node.left) and is_string(node.right)
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def is_literal(node: ast.AST) -> bool:
    """Return whether a node is a constant or a display of constants."""
    if isinstance(node, DISPLAYS):
        return all(is_literal(child) for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr_context))
    return isinstance(node, ast.Constant) or is_signed_number(node)


def identify(node: ast.expr) -> tuple[str, str]:
    """Return the type of a literal and a text that is the same for equal values of this type."""
    if isinstance(node, DISPLAYS):
        return type(node).__name__.lower(), ast.dump(node)
    value = ast.literal_eval(node)
    return type(value).__name__, repr(value)


def evaluate(text: str) -> Any:
    """Return the value of a literal, which may span lines."""
    return ast.literal_eval(wrap(text))


def wrap(text: str) -> str:
    """Return an expression in brackets, so that it may span lines."""
    return f"({text}\n)"


def cut_spans(spans: Iterable[Span], holes: Iterable[Span]) -> list[Span]:
    """Return spans without the holes in them."""
    parts = list(spans)
    for first, last in holes:
        parts = [
            piece
            for start, end in parts
            for piece in ([(start, first), (last, end)] if start <= first and last <= end else [(start, end)])
        ]
    return parts


def is_repeated(value: object, remarks: str) -> bool:
    """Return whether remarks repeat an expected value, and so reveal a changed one."""
    text = str(value).strip()
    return bool(text) and re.search(rf"(?<!\w){re.escape(text)}(?!\w)", remarks) is not None


def name_call(call: ast.Call) -> str:
    """Return the last part of the called name."""
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def find_definition(body: list[ast.stmt], name: str, kind: Any) -> Any:
    """Return the last definition of a name in a body, branches included."""
    definition = None
    for statement in body:
        if isinstance(statement, kind) and statement.name == name:
            definition = statement
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            parts = [getattr(statement, part, []) for part in ("body", "orelse", "finalbody")]
            definition = find_definition([child for part in parts for child in part], name, kind) or definition
    return definition


@dataclass(frozen=True)
class ParameterRow:
    """A row of a parametrized test, counted from 0; ``decorator`` counts the function's, then the class's."""

    decorator: int
    index: int


@dataclass(frozen=True)
class ParameterTable:
    """The names and rows of a ``parametrize`` decorator."""

    names: list[str]
    rows: list[ast.expr] = field(default_factory=list)


def read_parametrize(decorator: ast.expr) -> ParameterTable | None:
    """Return the table of a decorator, without rows if they are not a literal or pass through a fixture."""
    if not isinstance(decorator, ast.Call) or name_call(decorator) != "parametrize":
        return None
    arguments: Mapping[str | None, ast.expr] = {
        **dict(zip(("argnames", "argvalues"), decorator.args, strict=False)),
        **{keyword.arg: keyword.value for keyword in decorator.keywords},
    }
    match arguments.get("argnames"):
        case ast.Constant(value=str() as text):
            names = [name.strip() for name in text.split(",") if name.strip()]
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            names = [str(part.value) for part in parts if isinstance(part, ast.Constant)]
        case _:
            names = []
    values = arguments.get("argvalues")
    if "indirect" in arguments or not isinstance(values, ast.List | ast.Tuple):
        return ParameterTable(names)
    if any(isinstance(element, ast.Starred) for element in values.elts):
        return ParameterTable(names)
    return ParameterTable(names, values.elts)


def read_cells(row: ast.expr) -> list[ast.expr]:
    """Return the cells of a parametrized row."""
    if isinstance(row, ast.Call) and name_call(row) == "param":
        return row.args
    return row.elts if isinstance(row, ast.Tuple | ast.List) else [row]


def read_cell(row: ast.expr, column: int, width: int) -> ast.expr | None:
    """Return one cell of a row of ``width`` cells; None if the row has another width."""
    if width == 1 and not isinstance(row, ast.Call):
        return row
    cells = read_cells(row)
    fits = len(cells) == width and not any(isinstance(cell, ast.Starred) for cell in cells)
    return cells[column] if fits else None


def dump_cells(row: ast.expr, skipped: int | None) -> list[str]:
    """Return the cells of a row, except the skipped one, in a form that can be compared."""
    return [ast.dump(cell) for column, cell in enumerate(read_cells(row)) if column != skipped]
