"""What names in a piece of Python stand for, as far as the piece itself says: imports, aliases, constant strings."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from steps.grading.patches.trees import CodeTooLongError

_DEPTH = 20
_LONGEST_TEXT = 100_000
_IMPORTS = {"__import__", "builtins.__import__", "importlib.import_module", "importlib.__import__"}
_GETTERS = {"getattr", "builtins.getattr", "object.__getattribute__", "inspect.getattr_static"}


class Names:
    """Dotted names of expressions. ``sys`` is that module even where its import lies outside the patch.

    All may raise CodeTooLongError: thirty lines of ``s1 = s0 + s0`` make a text of any length.
    """

    def __init__(self, nodes: Iterable[ast.AST]) -> None:
        """``nodes`` are all of the piece's."""
        self._aliases: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        self.functions: dict[str, ast.AST] = {}
        """Functions of the piece by name."""
        assigned = []
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname:
                        self._aliases[alias.asname] = alias.name
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    self._aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions[node.name] = node
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                assigned.append((node.targets[0].id, node.value))
        for name, value in assigned:
            if isinstance(value, (ast.Attribute, ast.Call, ast.Subscript)) and (full := self.dotted(value)):
                self._aliases.setdefault(name, full)
            elif (text := self.text(value)) is not None:
                self._texts[name] = text

    def dotted(self, node: ast.AST, depth: int = _DEPTH) -> str:
        """``os._exit`` of anything that gives it; empty where it is not known."""
        if depth == 0:
            return ""
        if isinstance(node, ast.Name):
            return self._aliases.get(node.id, node.id)
        owner, name = "", None
        if isinstance(node, ast.Attribute):
            owner, name = self.dotted(node.value, depth - 1), node.attr
        elif isinstance(node, ast.Subscript):
            owner, name = self.dotted(node.value, depth - 1), self.text(node.slice)
            if owner == "sys.modules" and name:
                return name
            owner = owner.removesuffix(".__dict__")
        elif isinstance(node, ast.Call) and node.args:
            called = self.dotted(node.func, depth - 1)
            if called in _IMPORTS:
                return self.text(node.args[0]) or ""
            if called in _GETTERS and len(node.args) > 1:
                owner, name = self.dotted(node.args[0], depth - 1), self.text(node.args[1])
            elif called in {"vars", "builtins.vars"}:
                return self.dotted(node.args[0], depth - 1)
        return f"{owner}.{name}" if owner and name else ""

    def text(self, node: ast.AST | None, depth: int = _DEPTH) -> str | None:
        """The string that an expression of constants gives; None where it is none."""
        if node is None or depth == 0:
            return None
        if isinstance(node, ast.Constant):
            if isinstance(node.value, bytes):
                return node.value.decode(errors="replace")
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.Name):
            return self._texts.get(node.id)
        parts: list[ast.expr] = []
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = [node.left, node.right]
        elif isinstance(node, ast.JoinedStr):
            parts = node.values
        elif isinstance(node, ast.FormattedValue):
            parts = [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join":
            if (
                self.text(node.func.value, depth - 1) == ""
                and node.args
                and isinstance(node.args[0], (ast.List, ast.Tuple))
            ):
                parts = node.args[0].elts
        elif isinstance(node, ast.Subscript) and _is_reversed(node.slice):
            text = self.text(node.value, depth - 1)
            return None if text is None else text[::-1]
        texts = [self.text(part, depth - 1) for part in parts]
        known = [text for text in texts if text is not None]
        if sum(map(len, known)) > _LONGEST_TEXT:
            raise CodeTooLongError
        return "".join(known) if texts and len(known) == len(texts) else None


def _is_reversed(node: ast.expr) -> bool:
    """Whether a subscript is ``[::-1]``."""
    if not isinstance(node, ast.Slice) or node.lower or node.upper or not isinstance(node.step, ast.UnaryOp):
        return False
    step = node.step.operand
    return isinstance(node.step.op, ast.USub) and isinstance(step, ast.Constant) and step.value == 1
