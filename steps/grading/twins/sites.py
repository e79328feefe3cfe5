"""Sites: the constants a Python test expects, each of which can be changed to make the test a twin.

A twin is a test with one wrong expected value. ``find_sites`` reads a test file and returns the places where such a
value stands; ``apply_changes`` writes other values there and leaves every other byte alone.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from steps.grading.twins.expectations import Leaf, Module, Test
from steps.grading.twins.syntax import ParameterRow, Span, identify, parse_quietly, read_encoding


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
    row: ParameterRow | None
    spans: tuple[Span, ...]
    text: str
    kind: str
    strong: bool
    root: Span
    scope: tuple[Span, ...]
    avoid: tuple[str, ...] = ()


@dataclass(frozen=True)
class SiteChange:
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
    module = Module.parse(source)
    if module is None:
        return []
    earlier = Module.parse(base) if base is not None else None
    sites = []
    for name in sorted({*fail_to_pass, *pass_to_pass}):
        test = module.find_test(name)
        if test is None:
            continue
        before = earlier.find_test(name) if earlier and name in fail_to_pass else None
        for site, lines in _read_test(path, test, before):
            if name not in fail_to_pass or lines <= set(added_lines):
                sites.append(site)
    return sorted(sites, key=lambda site: (site.spans, site.test))


def apply_changes(source: bytes, changes: Iterable[SiteChange]) -> bytes:
    """Return ``source`` with new texts at the sites' spans, every other byte unchanged.

    Raises:
        ValueError: Two changes overlap, a site belongs to another source, or the result does not parse.
    """
    encoding = read_encoding(source)
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


def _read_test(path: str, test: Test, before: Test | None) -> Iterator[tuple[Site, set[int]]]:
    """Yield each site with the lines it stands on."""
    places: dict[ParameterRow | None, dict[tuple[str, str], list[ast.expr]]] = {}
    leaves: dict[ast.expr, Leaf] = {}
    for leaf in test.find_leaves():
        known = leaves.get(leaf.node)
        leaves[leaf.node] = leaf if known is None or known.strong >= leaf.strong else known
    seen: set[ast.expr] = set()
    for leaf in leaves.values():
        if leaf.node in seen:
            continue
        if leaf.row not in places:
            places[leaf.row] = test.index_literals(leaf.row)
        held = places[leaf.row]
        key = identify(leaf.node)
        nodes = held[key]
        others = [leaves.get(node) for node in nodes]
        if any(each is None or (each.row, each.strong) != (leaf.row, leaf.strong) for each in others):
            continue
        spans = sorted(test.module.locate(node) for node in nodes)
        texts = {test.module.source[start:end] for start, end in spans}
        avoid = before.held_values(test, leaf) if before else set()
        if len(texts) > 1 or key[1] in avoid:
            continue
        seen.update(nodes)
        yield (
            Site(
                path=path,
                test=test.name,
                row=leaf.row,
                spans=tuple(spans),
                text=texts.pop().decode(test.module.encoding),
                kind=identify(leaf.node)[0],
                strong=leaf.strong,
                root=test.module.locate(leaves[min(nodes, key=test.module.locate)].root),
                scope=tuple(test.module.locate(node) for node in test.list_scope(leaf.row)),
                avoid=tuple(sorted(avoid)),
            ),
            {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)},
        )
