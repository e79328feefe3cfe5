"""Sites: the constants a test expects, each of which can be changed to make the test a twin.

A twin is a test with one wrong expected value. ``find_sites`` reads a test file and returns the places of such values;
``apply_changes`` writes other values there and leaves every other byte alone.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from swe_argo.steps.grading.twins.expectations import ExpectedConstant, Module, Test
from swe_argo.steps.grading.twins.languages import Language, find_language
from swe_argo.steps.grading.twins.reader import ParsedFile
from swe_argo.steps.grading.twins.syntax import ParameterRow, Span, identify, is_repeated, parse_quietly, read_encoding
from swe_argo.steps.grading.twins.trees import count_errors, parse

WORD = "word"
"""The kind of a site that is a word or a number of a data file."""


@dataclass(frozen=True)
class Site:
    """A constant that a test expects.

    Attributes:
        path: The test file, as the caller named it.
        test: The qualified name of the test, such as ``TestMoney.test_round``.
        row: The parametrized row that holds the constant; None if it is in the test's body.
        spans: The places of the constant. Several spans hold the same value and change together.
        text: The source of the constant, the same at every span.
        kind: The type of the value.
        strong: Whether the original and a changed value cannot both pass, by the language's own equality.
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

    @property
    def key(self) -> str:
        """The name of the site in stored twins."""
        return f"{self.path}:{self.spans[0][0]}-{self.spans[0][1]}"


@dataclass(frozen=True)
class SiteChange:
    """A new text for a site.

    Attributes:
        site: The site.
        text: Its new text.
        inputs: Places of the test's inputs that change with it, and their new texts.
    """

    site: Site
    text: str
    inputs: tuple[tuple[Span, str], ...] = ()

    @property
    def edits(self) -> list[tuple[Span, str]]:
        """All places that change, and their new texts."""
        return [*((span, self.text) for span in self.site.spans), *self.inputs]


@dataclass(frozen=True)
class TestPlace:
    """The place of a test in the source.

    Attributes:
        path: The test file.
        name: The qualified name, ``Class.test`` or ``test``.
        rows: One row per ``parametrize`` decorator, by the decorator's number; empty if the test has none.
    """

    path: str
    name: str
    rows: tuple[ParameterRow, ...] = ()


def is_supported(path: str) -> bool:
    """Return whether the file is of a language whose tests can be read."""
    return path.endswith(".py") or find_language(path) is not None


def is_python(site: Site) -> bool:
    """Return whether the text of a site is Python."""
    return site.path.endswith(".py") and site.kind != WORD


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
        path: The path in the sites.
        source: The test file after the official test patch.
        fail_to_pass: Qualified names (``Class.test`` or ``test``) of FAIL_TO_PASS tests that the reference passes.
            Their sites are on added lines only and hold values the test does not have at the base commit.
        pass_to_pass: Qualified names of PASS_TO_PASS tests that the reference passes.
        added_lines: The line numbers (from 1) that the test patch adds.
        base: The file at the base commit; None if the test patch creates it.
    """
    language = find_language(path)
    if language is not None:
        file, old = (ParsedFile.parse(language, content) if content is not None else None for content in (source, base))
        sites = [
            site
            for name in sorted({*fail_to_pass, *pass_to_pass})
            for site, lines in _read_expected(path, file, name, old if name in fail_to_pass else None)
            if name not in fail_to_pass or lines <= set(added_lines)
        ]
        return sorted(sites, key=lambda site: (site.spans, site.test))
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
    changes = list(changes)
    if not changes:
        return source
    language = find_language(changes[0].site.path)
    is_data = any(change.site.kind == WORD for change in changes)
    encoding = "utf-8" if language or is_data else read_encoding(source)
    old_texts = {span: change.site.text for change in changes for span in change.site.spans}
    result, position = [], 0
    for (start, end), text in sorted(edit for change in changes for edit in change.edits):
        if start < position:
            raise ValueError(f"two changes overlap at byte {start}")
        before = source[start:end].decode(encoding)
        # The old texts of inputs are not known.
        if before != old_texts.get((start, end), before):
            raise ValueError(
                f"bytes {start} to {end} do not hold {old_texts[start, end]}: the site is of another source"
            )
        result += [source[position:start], text.encode(encoding)]
        position = end
    changed = b"".join([*result, source[position:]])
    if not is_data and not _parses(language, source, changed):
        raise ValueError("the changed source does not parse")
    return changed


def _parses(language: Language | None, source: bytes, changed: bytes) -> bool:
    """Return whether a changed source parses; in another language, with no more errors than the original."""
    if language is None:
        return parse_quietly(changed) is not None
    before, after = parse(language, source), parse(language, changed)
    return before is not None and after is not None and count_errors(after) <= count_errors(before)


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


def _read_expected(
    path: str, file: ParsedFile | None, name: str, old: ParsedFile | None
) -> Iterator[tuple[Site, set[int]]]:
    """Yield the site of each expected value of a test, with the site's line numbers; for languages other than Python.

    ``old``: the file before the test patch, None if it is new. Without the test, nothing is yielded.
    """
    test = file.find_test(name) if file else None
    if test is None:
        return
    for expected in test.find_expected(old.find_test(name) if old else None):
        yield (
            Site(
                path=path,
                test=name,
                row=expected.row,
                spans=expected.spans,
                text=expected.text,
                kind=expected.kind,
                strong=True,
                root=expected.root,
                scope=expected.scope,
                avoid=expected.avoid,
            ),
            set(expected.lines),
        )


def _read_test(path: str, test: Test, before: Test | None) -> Iterator[tuple[Site, set[int]]]:
    """Yield each site with its lines."""
    places: dict[ParameterRow | None, dict[tuple[str, str], list[ast.expr]]] = {}
    leaves: dict[ast.expr, ExpectedConstant] = {}
    for leaf in test.find_leaves():
        # A constant that several assertions expect is weak if one of these leaves is.
        previous = leaves.get(leaf.node)
        leaves[leaf.node] = leaf if previous is None or previous.strong >= leaf.strong else previous
    visited_nodes: set[ast.expr] = set()
    remarks = test.read_remarks()
    for leaf in leaves.values():
        is_scalar = isinstance(leaf.node, ast.Constant | ast.UnaryOp)
        if leaf.node in visited_nodes or (is_scalar and is_repeated(ast.literal_eval(leaf.node), remarks)):
            continue
        if leaf.row not in places:
            places[leaf.row] = test.index_literals(leaf.row)
        literals = places[leaf.row]
        key = identify(leaf.node)
        nodes = literals[key]
        others = [leaves.get(node) for node in nodes]
        # The value also stands where no assertion expects it, in another row, or as weak and strong.
        if any(other is None or (other.row, other.strong) != (leaf.row, leaf.strong) for other in others):
            continue
        spans = sorted(test.module.locate(node) for node in nodes)
        texts = {test.module.source[start:end] for start, end in spans}
        avoid = before.list_base_values(test, leaf) if before else set()
        # Skip a value that is written in several ways, or was in the base version.
        if len(texts) > 1 or key[1] in avoid:
            continue
        visited_nodes.update(nodes)
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
