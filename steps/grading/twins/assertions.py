"""Assertions: the comparisons that a test in another language than Python needs to hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from swe_argo.steps.grading.twins.trees import CallNode, Node, SyntaxTree, read_call, split_member, unwrap


class Assertions:
    """The assertions of one test, and the remarks beside them.

    Args:
        tree: The tree of its file.
        nodes: The nodes of the test.
    """

    def __init__(self, tree: SyntaxTree, nodes: list[Node]) -> None:
        self._tree, self._nodes, self._table = tree, nodes, tree.language

    def _walk(self) -> Iterator[Node]:
        for node in self._nodes:
            yield from node.walk()

    @cached_property
    def equalities(self) -> list[tuple[list[Node], str]]:
        """The operands of each comparison that the test needs to hold, and the kinds of constants it compares."""
        comparisons: list[tuple[list[Node], str]] = []
        for node in self._walk():
            if node.type == "if_statement":
                comparisons += self._read_branch(node)
            elif call := read_call(node):
                comparisons += self._read_assertion(call)
        return [([unwrap(operand) for operand in operands], kinds) for operands, kinds in comparisons]

    @cached_property
    def operands(self) -> set[Node]:
        """All operands."""
        return {operand for operands, _ in self.equalities for operand in operands}

    @cached_property
    def messages(self) -> set[Node]:
        """The arguments of assertions that only describe a failure."""
        calls = [call for node in self._walk() if (call := read_call(node))]
        return {
            argument
            for call in calls
            for assertion in self._table.assertions
            if re.fullmatch(assertion.pattern, call.label)
            for argument in call.arguments[assertion.first + 2 + bool(assertion.between) :]
        }

    @cached_property
    def remarks(self) -> str:
        """Comments, messages of assertions and reports, which may repeat an expected value."""
        table = self._table
        texts = [argument.text for argument in self.messages]
        for node in self._walk():
            if "comment" in node.type:
                texts.append(node.text)
            elif (call := read_call(node)) and re.fullmatch(f"{table.reports}|{table.failing}", call.label):
                texts += [argument.text for argument in call.arguments if self._tree.read_text(argument) is not None]
        return "\n".join(texts)

    def _read_branch(self, node: Node) -> Iterator[tuple[list[Node], str]]:
        """Yield the comparisons that must hold so that the test does not enter an ``if`` branch that fails it."""
        condition, body = node.get("condition"), node.get("consequence")
        statements = [statement for part in (body.children if body else ()) for statement in (part, *part.children)]
        calls = [call for statement in statements for part in statement.children[:1] if (call := read_call(part))]
        if condition and any(re.fullmatch(self._table.failing, call.label) for call in calls):
            yield from self._read_condition(condition, negated=True)

    def _read_assertion(self, call: CallNode) -> Iterator[tuple[list[Node], str]]:
        """Yield the comparisons that a call requires: of two arguments, in a condition, or ``expect(a).toBe(b)``.

        Each is a pair of operands, and the kinds of constants that it compares by value.
        """
        table = self._table
        arguments = call.arguments
        for assertion in table.assertions:
            if not re.fullmatch(assertion.pattern, call.label):
                continue
            # Go's `assert.Equal(t, a, b)` is also called as `is.Equal(a, b)`.
            first = assertion.first if not assertion.first or len(arguments) > 2 else 0
            rest = arguments[first:]
            if assertion.between:
                rest = [*rest[:1], *rest[2:]] if len(rest) > 2 and re.fullmatch(assertion.between, rest[1].text) else []
            if len(rest) >= 2 and (not assertion.exact or len(rest) == 2):
                yield rest[:2], "loose" if assertion.loose else "str int float bool"
        if arguments and re.fullmatch(table.conditions, call.label):
            yield from self._read_condition(arguments[0], negated=False)
        if call.receiver is None:
            return
        matcher = read_call(arguments[0]) if arguments and re.fullmatch(table.chained, call.name) else call
        if matcher and matcher.arguments and re.fullmatch(table.matchers, matcher.name):
            subject = self._find_subject(call.receiver)
            if subject:
                yield [subject, matcher.arguments[0]], "str int float bool"

    def _find_subject(self, node: Node) -> Node | None:
        """Return the result in ``expect(result).to.be``."""
        while True:
            call = read_call(node)
            if re.fullmatch(self._table.subjects, call.label if call else node.text):
                return call.arguments[0] if call and call.arguments else node
            receiver, name = split_member(node)
            if call or not receiver or not name or not re.fullmatch(self._table.chained, name.text):
                return None
            node = receiver

    def _read_condition(self, node: Node, *, negated: bool) -> Iterator[tuple[list[Node], str]]:
        """Yield the comparisons that must hold if a condition is true, or false if ``negated``."""
        node = unwrap(node)
        left, right = node.get("left"), node.get("right")
        if left and right and node.type in ("binary_expression", "binary"):
            operator = next((child.text for child in node.children if not child.is_named), "")
            if operator == ("||" if negated else "&&"):
                yield from self._read_condition(left, negated=negated)
                yield from self._read_condition(right, negated=negated)
            elif kinds := self._table.equal.get(operator):
                call = read_call(left)
                if call and right.text == "0" and re.fullmatch(self._table.comparisons, call.label):
                    yield call.arguments, "str"
                else:
                    yield [left, right], kinds
        elif negated and node.type == "unary_expression" and node.text.startswith("!"):
            yield from self._read_comparison(node.list_named()[-1])
        elif not negated:
            yield from self._read_comparison(node)

    def _read_comparison(self, node: Node) -> Iterator[tuple[list[Node], str]]:
        """Yield the operands of a call that is true if they are equal; ``strcmp`` returns 0 then."""
        call = read_call(unwrap(node))
        if call and re.fullmatch(self._table.comparisons, call.label) and not call.name.startswith("str"):
            operands = (
                [call.receiver, *call.arguments] if len(call.arguments) == 1 and call.receiver else call.arguments
            )
            if len(operands) == 2:
                yield operands, "str int float bool"
