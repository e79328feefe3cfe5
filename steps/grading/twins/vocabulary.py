"""The words and constants of a test file, from which wrong values are made."""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from swe_argo.steps.grading.twins.languages import find_language
from swe_argo.steps.grading.twins.reader import ParsedFile
from swe_argo.steps.grading.twins.sites import Site
from swe_argo.steps.grading.twins.syntax import decode_source, iterate_literals, name_call, parse_quietly

RUN = re.compile(r"[^\W\d_]+|\d+")
"""A word or a number inside a text."""
FIXED = re.compile(
    r"\\(?:N\{[^}]*\}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|[\s\S])|%[-#0 +\d.]*[a-zA-Z]"
)
"""Escapes and format directives of a string, which keep their text."""


class Vocabulary:
    """The words and constants of a test file.

    Args:
        source: The file.
        path: Its path, which determines its language; by default Python. Constants are written as Python's.
    """

    def __init__(self, source: bytes, path: str = "") -> None:
        self.source = source
        language = find_language(path)
        text, self.encoding = decode_source(source)
        self.words = Counter(RUN.findall(text))
        self.constants: dict[str, Counter[str]] = defaultdict(Counter)
        """The source texts of the file's constants, by type."""
        self.truths = Counter[bool]()
        """The number of assertions that expect each truth value."""
        if language is None:
            self._read_python(text)
        elif file := ParsedFile.parse(language, source):
            for _, written, value in file.iterate_constants(file.root):
                self.constants[type(value).__name__][written] += 1
            # The last test is the group of all tests of the file.
            self.truths.update(
                expected.text == "true" for expected in file.tests[-1].find_expected(None) if expected.kind == "bool"
            )
        self.letters = sorted({letter for word in self.words for letter in word if letter.isalpha()})
        self._pairs = _count_letter_pairs(self.words)
        self._firsts = Counter[str]()
        for (first, _), count in self._pairs.items():
            self._firsts[first] += count
        self._alike: dict[tuple[Any, ...], list[str]] = defaultdict(list)
        for written in itertools.chain(self.constants["str"], self.constants["bytes"]):
            self._alike[_describe_shape(written)].append(written)
        self._contexts: dict[tuple[Any, ...], Counter[str]] = {}

    def _read_python(self, text: str) -> None:
        """Count the constants of a Python file, and the truth values that its assertions expect."""
        lines = text.encode().splitlines()
        tree = parse_quietly(self.source) or ast.Module([], [])
        for node, value in iterate_literals(tree):
            if node.lineno == node.end_lineno and len(lines) >= node.lineno:
                written = lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode(errors="replace")
                self.constants[type(value).__name__][written] += 1
        self.truths.update(constant.value for constant in _list_compared(tree) if isinstance(constant.value, bool))

    def list_alike(self, text: str) -> list[str]:
        """Return the string literals of the file with the punctuation, escapes and directives of another."""
        return self._alike.get(_describe_shape(text), [])

    def rate_word(self, word: str, site: Site) -> float:
        """Return the mean log probability of the letter pairs of a word in this file, without the site."""
        own = Counter(RUN.findall(self.read(site.spans)))
        left_out = _count_letter_pairs(run for run, count in own.items() if self.words[run] == count)
        pairs = _list_letter_pairs(word)
        # Smoothed: a pair that the file lacks is rare, not impossible.
        chances = [(self._pairs[pair] - left_out[pair] + 0.1) / (self._firsts[pair[0]] + 3) for pair in pairs]
        return sum(map(math.log, chances)) / len(pairs)

    def read(self, spans: Iterable[tuple[int, int]]) -> str:
        """Return the text of some spans."""
        return "\n".join(self.source[start:end].decode(self.encoding) for start, end in spans)

    def count_scope(self, site: Site) -> Counter[str]:
        """Return the words of the site's test outside the site."""
        if site.scope not in self._contexts:
            self._contexts[site.scope] = Counter(word.lower() for word in RUN.findall(self.read(site.scope)))
        return self._contexts[site.scope] - Counter(word.lower() for word in RUN.findall(self.read(site.spans)))


def _describe_shape(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a string literal without its words, and its escapes and directives."""
    return RUN.sub("w", text), tuple(FIXED.findall(text))


def _list_compared(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the constants that comparisons and assertion methods take."""
    for node in ast.walk(tree):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            parts = node.comparators
        elif isinstance(node, ast.Call) and name_call(node).startswith("assert"):
            parts = node.args
        yield from (part for part in parts if isinstance(part, ast.Constant))


def _list_letter_pairs(word: str) -> list[tuple[str, str]]:
    """Return the pairs of adjacent letters of a word; ``^`` and ``$`` stand for its ends."""
    return list(itertools.pairwise(f"^{word.lower()}$"))


def _count_letter_pairs(words: Iterable[str]) -> Counter[tuple[str, str]]:
    return Counter(pair for word in words for pair in _list_letter_pairs(word))
