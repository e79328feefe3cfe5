"""Names in a Python test, and the expressions that they may stand for."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from swe_argo.steps.grading.twins.syntax import Function, ParameterRow, ParameterTable, read_cell


@dataclass(frozen=True)
class BoundValue:
    """An expression that a name stands for in a test."""

    value: ast.expr
    row: ParameterRow | None = None


class Names:
    """The names of one test.

    Attributes:
        rows: The rows of its ``parametrize`` decorators.
        bindings: The expressions each name may stand for; None if they are unknown.
    """

    def __init__(self, function: Function, tables: list[ParameterTable], parents: Mapping[ast.AST, ast.AST]) -> None:
        self._function, self._parents = function, parents
        self.rows: dict[ParameterRow, ast.expr] = {}
        self.bindings: dict[str, list[BoundValue] | None] = {}
        self._bind_parameters(tables)
        for node in ast.walk(function):
            self._bind_node(node)

    def _bind_parameters(self, tables: list[ParameterTable]) -> None:
        """Bind the parameters to the cells of their ``parametrize`` column; the values of others are unknown."""
        arguments = self._function.args
        for argument in (
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        ):
            if argument is not None:
                self.bindings[argument.arg] = None
        for number, table in enumerate(tables):
            self.rows.update({ParameterRow(number, index): row for index, row in enumerate(table.rows)})
            for column, name in enumerate(table.names):
                cells = [(index, read_cell(row, column, len(table.names))) for index, row in enumerate(table.rows)]
                values = [BoundValue(cell, ParameterRow(number, index)) for index, cell in cells if cell is not None]
                self.bindings[name] = values if values and name in self.bindings else None

    def _bind_node(self, node: ast.AST) -> None:
        """Bind the names that a node assigns; the values of names that are bound in other ways are unknown."""
        match node:
            case ast.Assign(targets=[target], value=value):
                self._bind(target, [value])
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind(target, [value])
            case ast.For(target=target, iter=table) | ast.AsyncFor(target=target, iter=table):
                self._bind(target, self._read_table(table))
            case ast.arg(arg=name) if self._parents.get(node) is not self._function.args:
                self.bindings[name] = None
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                if not isinstance(self._statement(node), ast.Assign | ast.AnnAssign | ast.For | ast.AsyncFor):
                    self.bindings[name] = None
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                self.bindings.update(dict.fromkeys(names))

    def _statement(self, node: ast.AST) -> ast.AST:
        """Return the statement that assigns to a name, or the expression that binds it."""
        node = self._parents[node]
        while isinstance(node, ast.Tuple | ast.List | ast.Starred):
            node = self._parents[node]
        return node

    def _bind(self, target: ast.expr, values: list[ast.expr] | None) -> None:
        """Add the values that an assignment may give to the names of its target; None if they are unknown."""
        if isinstance(target, ast.Name):
            before = self.bindings.get(target.id, [])
            self.bindings[target.id] = (
                None if before is None or values is None else before + [BoundValue(v) for v in values]
            )
        elif isinstance(target, ast.Tuple | ast.List):
            rows = [value.elts for value in values or [] if isinstance(value, ast.Tuple | ast.List)]
            fits = values is not None and len(rows) == len(values) and all(len(r) == len(target.elts) for r in rows)
            for column, part in enumerate(target.elts):
                self._bind(part, [row[column] for row in rows] if fits else None)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, None)

    def _read_table(self, table: ast.expr) -> list[ast.expr] | None:
        """Return the rows of a literal that a loop iterates over; None if they are unknown."""
        match table:
            case ast.Name(id=name):
                values = [binding.value for binding in self.bindings.get(name) or [] if binding.row is None]
                return self._read_table(values[0]) if len(values) == 1 and not isinstance(values[0], ast.Name) else None
            case ast.List(elts=rows) | ast.Tuple(elts=rows) | ast.Set(elts=rows):
                return rows
            case ast.Call(func=ast.Attribute(value=ast.Dict(keys=keys, values=values), attr="items"), args=[]):
                pairs = [ast.Tuple([key, value]) for key, value in zip(keys, values, strict=True) if key is not None]
                return list(pairs)
        return None
