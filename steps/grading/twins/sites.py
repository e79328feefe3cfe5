"""Sites: the constants a Python test expects, each of which can be changed to make the test a twin.

A twin is a test with one wrong expected value. ``find_sites`` reads a test file and returns the places where such a
value stands; ``apply_changes`` writes other values there and leaves every other byte alone.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["bool", "int", "float", "complex", "str", "bytes", "list", "tuple", "set", "dict"]
Span = tuple[int, int]
"""A half-open range of bytes in a source file."""
Function = ast.FunctionDef | ast.AsyncFunctionDef

DISPLAYS = (ast.List, ast.Tuple, ast.Set, ast.Dict)
EQUALITY_METHODS = {
    *("assertEqual", "assertEquals", "assertIs", "assertListEqual", "assertTupleEqual", "assertSetEqual"),
    *("assertDictEqual", "assertSequenceEqual", "assertMultiLineEqual", "assertCountEqual", "assertItemsEqual"),
}
"""Methods of ``unittest.TestCase`` that compare two values with Python's own equality."""
UNORDERED_METHODS = {"assertCountEqual", "assertItemsEqual"}
REPORTING_CALLS = {"subTest", "print", "fail"}
"""Calls whose arguments only appear in messages."""


@dataclass(frozen=True)
class Row:
    """A row of a parametrized test, counted from 0; ``decorator`` counts the function's, then the class's."""

    decorator: int
    index: int


@dataclass(frozen=True)
class Site:
    """A constant that a test expects.

    Attributes:
        path: The test file, as the caller named it.
        test: The qualified name of the test, such as ``TestMoney.test_round``.
        row: The parametrized row that holds the constant; None if it stands in the test's body.
        spans: Where the constant stands. Several spans hold the same value and change together.
        text: The source of the constant, the same at every span.
        kind: The type of the value.
        strong: Whether the original and a changed value cannot both pass, by Python's own equality.
        root: The outermost literal around the first span: the whole expected value.
        scope: The source of the test: its body, decorators and rows.
        avoid: Values (as ``identify`` writes them) that this test holds at the base commit and a twin must not show.
    """

    path: str
    test: str
    row: Row | None
    spans: tuple[Span, ...]
    text: str
    kind: Kind
    strong: bool
    root: Span
    scope: tuple[Span, ...]
    avoid: tuple[str, ...] = ()


@dataclass(frozen=True)
class Change:
    """A new text for a site."""

    site: Site
    text: str


def find_sites(
    path: str,
    source: bytes,
    *,
    fail_to_pass: Collection[str] = (),
    pass_to_pass: Collection[str] = (),
    added_lines: Collection[int] = (),
    base: bytes | None = None,
) -> list[Site]:
    """Return the sites of the given tests in file order; none if the file cannot be parsed.

    Args:
        path: The name the sites carry.
        source: The test file after the official test patch.
        fail_to_pass: Qualified names (``Class.test`` or ``test``) of FAIL_TO_PASS tests that the reference passes.
            Their sites stand on added lines alone and hold values the test does not have at the base commit.
        pass_to_pass: Qualified names of PASS_TO_PASS tests that the reference passes.
        added_lines: The line numbers (from 1) that the test patch adds.
        base: The file at the base commit; None if the test patch creates it.
    """
    module = _Module.parse(source)
    if module is None:
        return []
    earlier = _Module.parse(base) if base is not None else None
    sites = []
    for name in sorted({*fail_to_pass, *pass_to_pass}):
        test = module.find_test(name)
        if test is None:
            continue
        before = earlier.find_test(name) if earlier and name in fail_to_pass else None
        for site, lines in test.find_sites(path, before):
            if name not in fail_to_pass or lines <= set(added_lines):
                sites.append(site)
    return sorted(sites, key=lambda site: (site.spans, site.test))


def apply_changes(source: bytes, changes: Iterable[Change]) -> bytes:
    """Return ``source`` with new texts at the sites' spans, every other byte unchanged.

    Raises:
        ValueError: Two changes overlap, a site belongs to another source, or the result does not parse.
    """
    encoding = _read_encoding(source)
    edits = sorted(((span, change) for change in changes for span in change.site.spans), key=lambda edit: edit[0])
    result, position = [], 0
    for (start, end), change in edits:
        if start < position:
            raise ValueError(f"two changes overlap at byte {start}")
        if source[start:end].decode(encoding) != change.site.text:
            raise ValueError(f"bytes {start} to {end} do not hold {change.site.text}: the site is of another source")
        result += [source[position:start], change.text.encode(encoding)]
        position = end
    changed = b"".join([*result, source[position:]])
    if parse_quietly(changed) is None:
        raise ValueError("the changed source does not parse")
    return changed


def find_added_lines(patch: str) -> dict[str, set[int]]:
    """Return the line numbers that a unified diff adds, by path after the patch."""
    added: dict[str, set[int]] = defaultdict(set)
    path, line, left = "", 0, 0
    for text in patch.split("\n"):
        hunk = re.match(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@", text)
        if hunk:
            line, left = int(hunk[1]), int(hunk[2] or 1)
        elif left > 0 and not text.startswith(("-", "\\")):
            if text.startswith("+"):
                added[path].add(line)
            line, left = line + 1, left - 1
        elif left <= 0 and text.startswith("+++ "):
            path = text[4:].split("\t")[0].removeprefix("b/")
    return dict(added)


def parse_quietly(source: str | bytes) -> ast.Module | None:
    """Return the syntax tree, or None if the source does not parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def iterate_literals(node: ast.AST) -> Iterator[tuple[ast.expr, Any]]:
    """Yield every constant below ``node`` with its value; a sign belongs to its number."""
    if isinstance(node, ast.Constant):
        yield node, node.value
    elif _is_signed_number(node):
        yield node, ast.literal_eval(node)  # type: ignore[misc]
    else:
        for child in ast.iter_child_nodes(node):
            yield from iterate_literals(child)


def _is_signed_number(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub | ast.UAdd)
        and isinstance(node.operand, ast.Constant)
        and isinstance(node.operand.value, int | float | complex)
        and not isinstance(node.operand.value, bool)
    )


def _is_string(node: ast.expr) -> bool:
    """Return whether the node is a string or bytes literal, or a sum of them."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _is_string(node.left) and _is_string(node.right)
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def decode_source(source: bytes) -> tuple[str, str]:
    """Return the text of a source file, line ends as they are, and its encoding."""
    encoding = _read_encoding(source)
    return source.decode(encoding), encoding


def _read_encoding(source: bytes) -> str:
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


@dataclass
class _Module:
    """A parsed source file."""

    source: bytes
    encoding: str
    tree: ast.Module
    starts: list[int]
    """The byte offset of each line."""
    functions: dict[str, Function] = field(init=False)
    """The functions that calls of a bare name may mean."""
    expected: dict[Function, set[str]] = field(default_factory=dict)
    """The parameters that helpers expect, as far as they are known."""

    def __post_init__(self) -> None:
        self.functions = {each.name: each for each in self.tree.body if isinstance(each, Function)}

    @classmethod
    def parse(cls, source: bytes) -> _Module | None:
        try:
            encoding = _read_encoding(source)
        except ValueError:
            return None
        tree = parse_quietly(source)
        if tree is None:
            return None
        first = 3 if source.startswith(b"\xef\xbb\xbf") else 0
        return cls(source, encoding, tree, [first, *(end.end() for end in re.finditer(rb"\r\n|\r|\n", source))])

    def locate(self, node: ast.expr | ast.stmt) -> Span:
        """Return the bytes of a node."""
        return (
            self._offset(node.lineno, node.col_offset),
            self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0),
        )

    def _offset(self, line: int, column: int) -> int:
        """Return the byte offset of a position of ``ast``, whose columns count bytes of UTF-8."""
        start = self.starts[line - 1]
        if self.encoding != "utf-8":
            end = self.starts[line] if line < len(self.starts) else len(self.source)
            column = len(self.source[start:end].decode(self.encoding).encode()[:column].decode())
        return start + column

    def find_test(self, name: str) -> _Test | None:
        """Return the test of a qualified name; a method may be inherited from a class of the same file."""
        *class_names, function_name = name.split(".")
        classes: list[ast.ClassDef] = []
        for class_name in class_names:
            found = _find_definition(classes[-1].body if classes else self.tree.body, class_name, ast.ClassDef)
            if found is None:
                return None
            classes.append(found)
        chain = self._linearize(classes[-1]) if classes else []
        for body in [each.body for each in chain] if classes else [self.tree.body]:
            function = _find_definition(body, function_name, Function)
            if function is not None:
                return _Test(self, function, name, chain)
        return None

    def _linearize(self, cls: ast.ClassDef) -> list[ast.ClassDef]:
        """Return a class and its bases in this file, nearest first."""
        chain, waiting = [], [cls]
        while waiting:
            current = waiting.pop(0)
            if current in chain:
                continue
            chain.append(current)
            names = [base.id for base in current.bases if isinstance(base, ast.Name)]
            bases = [_find_definition(self.tree.body, name, ast.ClassDef) for name in names]
            waiting += [base for base in bases if base is not None]
        return chain


def _find_definition(body: list[ast.stmt], name: str, kind: Any) -> Any:
    """Return the last definition of a name in a body, branches included."""
    found = None
    for statement in body:
        if isinstance(statement, kind) and statement.name == name:
            found = statement
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            parts = [getattr(statement, part, []) for part in ("body", "orelse", "finalbody")]
            found = _find_definition([each for part in parts for each in part], name, kind) or found
    return found


@dataclass(frozen=True)
class _Leaf:
    """A constant or display on the expected side of an assertion."""

    node: ast.expr
    root: ast.expr
    strong: bool
    row: Row | None


@dataclass(frozen=True)
class _Binding:
    """An expression that a name stands for in a test."""

    value: ast.expr
    row: Row | None = None


class _Test:
    """One test function and what its assertions expect."""

    def __init__(self, module: _Module, function: Function, name: str, classes: list[ast.ClassDef]) -> None:
        self.module, self.function, self.name, self.classes = module, function, name, classes
        decorators = [*function.decorator_list, *(each for cls in classes[:1] for each in cls.decorator_list)]
        tables = [table for each in decorators if (table := _read_parametrize(each))]
        self.rows: dict[Row, ast.expr] = {}
        self.bindings: dict[str, list[_Binding] | None] = {}
        """What each name may stand for; None if that cannot be told."""
        self.parents = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
        self.reads: dict[str, list[ast.Name]] = defaultdict(list)
        for node in self.parents:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self.reads[node.id].append(node)
        self.compared_only: dict[str, bool] = {}
        self.nested = {each.name: each for each in self.parents if isinstance(each, Function)}
        self._bind_parameters(tables)
        for node in ast.walk(function):
            self._bind_node(node)
        self.other_decorators = [each for each in function.decorator_list if not _read_parametrize(each)]

    def find_sites(self, path: str, before: _Test | None) -> Iterator[tuple[Site, set[int]]]:
        """Yield each site with the lines it stands on."""
        places: dict[Row | None, dict[tuple[str, str], list[ast.expr]]] = {}
        leaves: dict[ast.expr, _Leaf] = {}
        for leaf in self.find_leaves():
            known = leaves.get(leaf.node)
            leaves[leaf.node] = leaf if known is None or known.strong >= leaf.strong else known
        seen: set[ast.expr] = set()
        for leaf in leaves.values():
            if leaf.node in seen:
                continue
            if leaf.row not in places:
                places[leaf.row] = self._index_literals(leaf.row)
            held = places[leaf.row]
            key = identify(leaf.node)
            nodes = held[key]
            others = [leaves.get(node) for node in nodes]
            if any(each is None or (each.row, each.strong) != (leaf.row, leaf.strong) for each in others):
                continue
            spans = sorted(self.module.locate(node) for node in nodes)
            texts = {self.module.source[start:end] for start, end in spans}
            avoid = before.held_values(self, leaf) if before else set()
            if len(texts) > 1 or key[1] in avoid:
                continue
            seen.update(nodes)
            yield (
                Site(
                    path=path,
                    test=self.name,
                    row=leaf.row,
                    spans=tuple(spans),
                    text=texts.pop().decode(self.module.encoding),
                    kind=_name_kind(leaf.node),
                    strong=leaf.strong,
                    root=self.module.locate(leaves[min(nodes, key=self.module.locate)].root),
                    scope=tuple(self.module.locate(node) for node in self._scope(leaf.row)),
                    avoid=tuple(sorted(avoid)),
                ),
                {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)},
            )

    def held_values(self, after: _Test, leaf: _Leaf) -> set[str]:
        """Return the values this version of a test holds that a site of a later version must not have.

        A new row of a table is a new test: of the rows, only those with equal other cells count.
        """
        rows = list(self.rows.values())
        if leaf.row is not None:
            mine = _dump_cells(after.rows[leaf.row])
            rows = [row for row in rows if _differ_in_one(_dump_cells(row), mine)]
        scope = [self.function, *self.other_decorators, *rows]
        kind = _name_kind(leaf.node)
        return {
            text for part in scope for node in _iterate_values(part) for name, text in [identify(node)] if name == kind
        }

    def _scope(self, row: Row | None) -> list[ast.expr | ast.stmt]:
        rows = self.rows.values() if row is None else [self.rows[row]]
        return [self.function, *self.other_decorators, *rows]

    def _index_literals(self, row: Row | None) -> dict[tuple[str, str], list[ast.expr]]:
        index = defaultdict(list)
        for part in self._scope(row):
            for node in _iterate_values(part):
                index[identify(node)].append(node)
        return index

    # What names stand for.

    def _bind_parameters(self, tables: list[_Table]) -> None:
        arguments = self.function.args
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
            self.rows.update({Row(number, index): row for index, row in enumerate(table.rows)})
            for column, name in enumerate(table.names):
                cells = [(index, _read_cell(row, column, len(table.names))) for index, row in enumerate(table.rows)]
                found = [_Binding(cell, Row(number, index)) for index, cell in cells if cell is not None]
                self.bindings[name] = found if found and name in self.bindings else None

    def _bind_node(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=[target], value=value):
                self._bind(target, [value])
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind(target, [value])
            case ast.For(target=target, iter=table) | ast.AsyncFor(target=target, iter=table):
                self._bind(target, self._read_table(table))
            case ast.arg(arg=name) if self.parents.get(node) is not self.function.args:
                self.bindings[name] = None
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                if not isinstance(self._statement(node), ast.Assign | ast.AnnAssign | ast.For | ast.AsyncFor):
                    self.bindings[name] = None
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                self.bindings.update(dict.fromkeys(names))

    def _statement(self, node: ast.AST) -> ast.AST:
        """Return the statement whose target a name is, or the expression that binds it."""
        node = self.parents[node]
        while isinstance(node, ast.Tuple | ast.List | ast.Starred):
            node = self.parents[node]
        return node

    def _bind(self, target: ast.expr, values: list[ast.expr] | None) -> None:
        if isinstance(target, ast.Name):
            known = self.bindings.get(target.id, [])
            self.bindings[target.id] = (
                None if known is None or values is None else known + [_Binding(v) for v in values]
            )
        elif isinstance(target, ast.Tuple | ast.List):
            rows = [value.elts for value in values or [] if isinstance(value, ast.Tuple | ast.List)]
            fits = values is not None and len(rows) == len(values) and all(len(r) == len(target.elts) for r in rows)
            for column, part in enumerate(target.elts):
                self._bind(part, [row[column] for row in rows] if fits else None)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, None)

    def _read_table(self, table: ast.expr) -> list[ast.expr] | None:
        """Return the rows of a literal that a loop runs over."""
        match table:
            case ast.Name(id=name):
                values = [each.value for each in self.bindings.get(name) or [] if each.row is None]
                return self._read_table(values[0]) if len(values) == 1 and not isinstance(values[0], ast.Name) else None
            case ast.List(elts=rows) | ast.Tuple(elts=rows) | ast.Set(elts=rows):
                return rows
            case ast.Call(func=ast.Attribute(value=ast.Dict(keys=keys, values=values), attr="items"), args=[]):
                pairs = [ast.Tuple([key, value]) for key, value in zip(keys, values, strict=True) if key is not None]
                return list(pairs)
        return None

    def _resolve(self, name: ast.Name) -> list[_Binding] | None:
        """Return the literals a name stands for, if only assertions read it."""
        found = self.bindings.get(name.id)
        if found and name.id not in self.compared_only:
            self.compared_only[name.id] = all(self._is_harmless(node) for node in self.reads[name.id])
        return found if found and self.compared_only[name.id] else None

    def _is_harmless(self, node: ast.AST) -> bool:
        """Return whether a read only compares or reports the value."""
        child, parent = node, self.parents[node]
        while isinstance(parent, ast.List | ast.Tuple | ast.Set | ast.Dict | ast.Starred):
            child, parent = parent, self.parents[parent]
        if isinstance(parent, ast.Compare) or (isinstance(parent, ast.For | ast.AsyncFor) and parent.iter is child):
            return True
        while child is not self.function:
            if isinstance(parent, ast.Assert) and parent.msg is child:
                return True
            if isinstance(parent, ast.Call) and child is not parent.func:
                name = _name_call(parent)
                is_operand = child is not node and name.startswith("assert") and child in parent.args[:2]
                if name in REPORTING_CALLS or (name.startswith("assert") and not is_operand):
                    return True
                if child in (self._find_helper(parent) or []):
                    return True
            child, parent = parent, self.parents.get(parent, self.function)
        return False

    # What assertions expect.

    def find_leaves(self) -> Iterator[_Leaf]:
        """Yield the constants on the expected sides of all assertions."""
        for node in ast.walk(self.function):
            if isinstance(node, ast.Assert):
                yield from self._read_condition(node.test, strong=True)
            elif isinstance(node, ast.Call):
                yield from self._read_call(node)

    def expected_parameters(self) -> set[str]:
        """Return the parameters that strong assertions of this function read on their expected sides."""
        # A parameter with other reads is an input: `_resolve` refuses it, and no leaf shows its mark.
        expected = set()
        for argument in (*self.function.args.args, *self.function.args.kwonlyargs):
            mark = ast.Constant(0)
            before, self.bindings[argument.arg] = self.bindings.get(argument.arg), [_Binding(mark)]
            if any(leaf.node is mark and leaf.strong for leaf in self.find_leaves()):
                expected.add(argument.arg)
            self.bindings[argument.arg] = before
        return expected

    def _read_condition(self, node: ast.expr, *, strong: bool) -> Iterator[_Leaf]:
        match node:
            case ast.BoolOp(op=operator, values=values):
                for value in values:
                    yield from self._read_condition(value, strong=strong and isinstance(operator, ast.And))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield from self._read_condition(operand, strong=False)
            case ast.Compare(left=left, ops=operators, comparators=others):
                if all(isinstance(each, ast.Eq | ast.Is) for each in operators):
                    yield from self._compare([left, *others], strong=strong)
                else:
                    yield from (leaf for each in [left, *others] for leaf in self._weaken(each))

    def _read_call(self, call: ast.Call) -> Iterator[_Leaf]:
        name = _name_call(call)
        helper = self._find_helper(call)
        if helper is not None:
            for argument in helper:
                if self._classify(argument) != "result":
                    yield from self._expand(argument, argument, strong=True)
        elif name == "raises" or not isinstance(call.func, ast.Attribute):
            yield from (leaf for each in call.keywords if each.arg == "match" for leaf in self._weaken(each.value))
        elif name in EQUALITY_METHODS and self._find_function(call) is None:
            named = [each.value for each in call.keywords if each.arg in ("first", "second", "expr1", "expr2")]
            operands = [*call.args[: 2 - len(named)], *named]
            if len(operands) == 2 and not any(isinstance(each, ast.Starred) for each in operands):
                yield from self._compare(operands, strong=True, ordered=name not in UNORDERED_METHODS)
        elif name in ("assertTrue", "assertFalse") and call.args:
            yield from self._read_condition(call.args[0], strong=name == "assertTrue")
        elif name.startswith("assert"):
            yield from (leaf for each in call.args[1:] for leaf in self._weaken(each))

    def _find_function(self, call: ast.Call) -> Function | None:
        """Return the definition that a call of this file's own helper names."""
        match call.func:
            case ast.Name(id=name):
                return self.nested.get(name) or self.module.functions.get(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                bodies = [_find_definition(cls.body, name, Function) for cls in self.classes]
                return next((each for each in bodies if each is not None), None)
        return None

    def _find_helper(self, call: ast.Call) -> list[ast.expr] | None:
        """Return the arguments of a helper's call that the helper expects; None if it expects none."""
        definition = self._find_function(call)
        if (
            definition is None
            or definition is self.function
            or any(isinstance(each, ast.Starred) for each in call.args)
        ):
            return None
        expected = self.module.expected.get(definition)
        if expected is None:
            self.module.expected[definition] = set()  # a helper that calls itself expects nothing by that call
            expected = _Test(self.module, definition, definition.name, self.classes).expected_parameters()
            self.module.expected[definition] = expected
        names = [each.arg for each in (*definition.args.posonlyargs, *definition.args.args)]
        if isinstance(call.func, ast.Attribute):
            names = names[1:]
        given = [*zip(names, call.args, strict=False), *((each.arg, each.value) for each in call.keywords)]
        return [value for name, value in given if name in expected] or None

    def _compare(self, operands: list[ast.expr], *, strong: bool, ordered: bool = True) -> Iterator[_Leaf]:
        """Yield the constants of the side that is a literal, where another side is a result."""
        shapes = [self._classify(each) for each in operands]
        results = [shape != "literal" for shape in shapes]
        for operand, shape in zip(operands, shapes, strict=True):
            if (shape == "literal" and any(results)) or (shape == "mixed" and "result" in shapes):
                yield from self._expand(operand, operand, strong=strong, ordered=ordered)
        if all(shape == "result" for shape in shapes):
            yield from self._weaken(operands[-1])

    def _classify(self, node: ast.expr, depth: int = 0) -> Literal["literal", "mixed", "result"]:
        if isinstance(node, ast.Constant) or _is_signed_number(node) or _is_string(node):
            return "literal"
        if isinstance(node, ast.Name) and depth < 5:
            shapes = {self._classify(each.value, depth + 1) for each in self._resolve(node) or []}
            return "result" if not shapes or "result" in shapes else "mixed" if "mixed" in shapes else "literal"
        if isinstance(node, DISPLAYS):
            parts = [self._classify(each) for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
            return "literal" if all(part == "literal" for part in parts) else "mixed"
        return "result"

    def _expand(
        self, node: ast.expr, root: ast.expr, *, strong: bool, ordered: bool = True, row: Row | None = None
    ) -> Iterator[_Leaf]:
        """Yield the constants of an expected value: strong in displays, weak in calls and other expressions."""
        if isinstance(node, ast.Name):
            for binding in self._resolve(node) or []:
                yield from self._expand(
                    binding.value, binding.value, strong=strong, ordered=ordered, row=binding.row or row
                )
        elif isinstance(node, ast.Constant) or _is_signed_number(node):
            if not isinstance(node, ast.Constant) or isinstance(node.value, bool | int | float | complex | str | bytes):
                yield _Leaf(node, root, strong, row)
        elif isinstance(node, DISPLAYS):
            if strong and ordered and is_literal(node):
                yield _Leaf(node, root, strong, row)
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    yield from self._expand(child, root, strong=strong, ordered=ordered, row=row)
        elif _is_string(node) and isinstance(node, ast.BinOp):
            for part in (node.left, node.right):
                yield from self._expand(part, part, strong=strong, row=row)
        else:
            yield from (_Leaf(leaf.node, root, False, row) for leaf in self._weaken(node))

    def _weaken(self, node: ast.expr) -> Iterator[_Leaf]:
        """Yield every constant below a node as weak."""
        if isinstance(node, ast.JoinedStr):  # before Python 3.12, positions inside are those of the whole string
            return
        if isinstance(node, ast.Constant) or _is_signed_number(node) or isinstance(node, ast.Name):
            yield from self._expand(node, node, strong=False)
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    yield from self._weaken(child)
                elif isinstance(child, ast.keyword):
                    yield from self._weaken(child.value)


@dataclass(frozen=True)
class _Table:
    """The names and rows of a ``parametrize`` decorator."""

    names: list[str]
    rows: list[ast.expr] = field(default_factory=list)


def _read_parametrize(decorator: ast.expr) -> _Table | None:
    """Return the table of a decorator, without rows if they are not a literal or pass through a fixture."""
    if not isinstance(decorator, ast.Call) or _name_call(decorator) != "parametrize":
        return None
    given: Mapping[str | None, ast.expr] = {
        **dict(zip(("argnames", "argvalues"), decorator.args, strict=False)),
        **{each.arg: each.value for each in decorator.keywords},
    }
    match given.get("argnames"):
        case ast.Constant(value=str() as text):
            names = [name.strip() for name in text.split(",") if name.strip()]
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            names = [str(part.value) for part in parts if isinstance(part, ast.Constant)]
        case _:
            names = []
    values = given.get("argvalues")
    if "indirect" in given or not isinstance(values, ast.List | ast.Tuple):
        return _Table(names)
    if any(isinstance(each, ast.Starred) for each in values.elts):
        return _Table(names)
    return _Table(names, values.elts)


def _read_cells(row: ast.expr) -> list[ast.expr]:
    if isinstance(row, ast.Call) and _name_call(row) == "param":
        return row.args
    return row.elts if isinstance(row, ast.Tuple | ast.List) else [row]


def _read_cell(row: ast.expr, column: int, width: int) -> ast.expr | None:
    if width == 1 and not isinstance(row, ast.Call):
        return row
    cells = _read_cells(row)
    fits = len(cells) == width and not any(isinstance(cell, ast.Starred) for cell in cells)
    return cells[column] if fits else None


def _dump_cells(row: ast.expr) -> list[str]:
    return [ast.dump(cell) for cell in _read_cells(row)]


def _differ_in_one(ours: list[str], theirs: list[str]) -> bool:
    return len(ours) == len(theirs) and sum(a != b for a, b in zip(ours, theirs, strict=True)) <= 1


def _iterate_values(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the constants and literal displays of a node; of a function, without those of its decorators."""
    for part in (node.args, *node.body) if isinstance(node, Function) else (node,):
        for literal, _ in iterate_literals(part):
            yield literal
        for each in ast.walk(part):
            if isinstance(each, DISPLAYS) and is_literal(each):
                yield each


def is_literal(node: ast.AST) -> bool:
    """Return whether a node is a constant or a display of constants."""
    if isinstance(node, DISPLAYS):
        return all(is_literal(child) for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr_context))
    return isinstance(node, ast.Constant) or _is_signed_number(node)


def identify(node: ast.expr) -> tuple[str, str]:
    """Return the type of a literal and a text that equal values of this type share."""
    if isinstance(node, DISPLAYS):
        return type(node).__name__.lower(), ast.dump(node)
    value = ast.literal_eval(node)
    return type(value).__name__, repr(value)


def _name_kind(node: ast.expr) -> Kind:
    return type(ast.literal_eval(node)).__name__  # type: ignore[return-value]


def _name_call(call: ast.Call) -> str:
    """Return the last part of the called name."""
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""
