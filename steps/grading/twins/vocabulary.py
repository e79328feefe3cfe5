"""The words of a test file, from which wrong values are made, and the visible traits that such a value must share."""

from __future__ import annotations

import ast
import itertools
import math
import re
import unicodedata
from calendar import monthrange
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from random import Random
from typing import Any

from swe_argo.steps.grading.twins.languages import find_language
from swe_argo.steps.grading.twins.reader import ParsedFile
from swe_argo.steps.grading.twins.sites import Site, list_sites
from swe_argo.steps.grading.twins.syntax import (
    DISPLAYS,
    Span,
    cut_spans,
    evaluate,
    identify,
    is_literal,
    iterate_literals,
    name_call,
    parse_quietly,
    read_encoding,
    wrap,
)

RUN = re.compile(r"[^\W\d_]+|\d+")
"""A word or a number inside a text."""
FIXED = re.compile(
    r"\\(?:N\{[^}]*\}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|[\s\S])|%[-#0 +\d.]*[a-zA-Z]"
)
"""Escapes and format directives of a string, which keep their text."""
STRING = re.compile(
    r"(?P<prefix>[a-zA-Z]*)(?P<quote>'''|\"\"\"|'|\")(?P<body>(?:\\[\s\S]|(?!(?P=quote))[\s\S])*)(?P=quote)"
)
"""A string literal in a source file."""
DATE = re.compile(r"(?<![\d-])(?:(\d{4})-)?(\d\d)-(\d\d)(?![\d-])")
MOST_LETTERS = 60  # of a text that are compared with the test's input


class Vocabulary:
    """The words and constants of a test file, constants as Python writes them; its path determines the language."""

    def __init__(self, source: bytes, path: str = "") -> None:
        self.source = source
        language = find_language(path)
        self.encoding = read_encoding(source)
        text = source.decode(self.encoding)
        self.words = Counter(RUN.findall(text))
        self.constants: dict[str, Counter[str]] = defaultdict(Counter)  # the source texts, by type
        self.truths = Counter[bool]()  # the number of assertions that expect each truth value
        if language is None:
            self._read_python(text)
        elif file := ParsedFile.parse(language, source):
            for written, value in filter(None, map(file.read_constant, file.iterate_constants(file.root))):
                self.constants[type(value).__name__][written] += 1
            # The last test is the group of all tests of the file.
            sites = list_sites(path, source, file.encoding, file.tests[-1])
            self.truths.update(site.text == "true" for site in sites if site.kind == "bool")
        self.letters = sorted({letter for word in self.words for letter in word if letter.isalpha()})
        self._pairs = _count_letter_pairs(self.words)
        self._firsts = Counter[str]()
        for (first, _), count in self._pairs.items():
            self._firsts[first] += count
        self._alike: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
        for written in itertools.chain(self.constants["str"], self.constants["bytes"]):
            self._alike[_describe_shape(written)].append(written)
        self._contexts: dict[tuple[Span, ...], Counter[str]] = {}

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
        """Return the words of the site's test outside the site, in lower case."""
        if site.scope not in self._contexts:
            self._contexts[site.scope] = Counter(map(str.lower, RUN.findall(self.read(site.scope))))
        return self._contexts[site.scope] - Counter(map(str.lower, RUN.findall(self.read(site.spans))))


def _describe_shape(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a string literal without its words, and its escapes and directives."""
    return RUN.sub("w", text), tuple(FIXED.findall(text))


def _list_compared(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        match node:
            case ast.Compare(comparators=parts):
                yield from (part for part in parts if isinstance(part, ast.Constant))
            case ast.Call(args=parts) if name_call(node).startswith("assert"):
                yield from (part for part in parts if isinstance(part, ast.Constant))


def _list_letter_pairs(word: str) -> list[tuple[str, str]]:
    """Return the pairs of adjacent letters of a word; ``^`` and ``$`` stand for its ends."""
    return list(itertools.pairwise(f"^{word.lower()}$"))


def _count_letter_pairs(words: Iterable[str]) -> Counter[tuple[str, str]]:
    return Counter(pair for word in words for pair in _list_letter_pairs(word))


def measure_display(value: object) -> tuple[int, Decimal | None]:
    """Return the length of a display, and the sum of its elements if all are numbers or texts of numbers."""
    if not isinstance(value, list | tuple | set | dict):
        return 0, None
    try:
        parts = [Decimal(str(element)) for element in (value.values() if isinstance(value, dict) else value)]
    except InvalidOperation:
        return len(value), None
    return len(value), sum(parts, Decimal()) if all(part.is_finite() for part in parts) else None


def count_false_dates(text: str) -> int:
    """Return how many texts with the form of a date are not valid dates."""
    # Without a year, 29 February is valid; the calendar has no year 0.
    return sum(
        not (1 <= int(month) <= 12 and 1 <= int(day) <= monthrange(int(year or 2000) or 1, int(month))[1])
        for year, month, day in DATE.findall(text)
    )


def fold_letters(text: str) -> str:
    """Return the letters and digits of a text in lower case, without accents."""
    plain = unicodedata.normalize("NFKD", text[:MOST_LETTERS]).encode("ascii", "ignore").decode()
    return "".join(letter for letter in plain.lower() if letter.isalnum())


@lru_cache(maxsize=65536)
def count_common_letters(first: str, second: str) -> int:
    """Return the length of the longest common subsequence."""
    row = [0] * (len(second) + 1)
    for letter in first:
        before = row
        row = [0]
        for at, other in enumerate(second):
            row.append(before[at] + 1 if letter == other else max(before[at + 1], row[at]))
    return row[-1]


class Judge:
    """A judge that compares candidates for one site with its original."""

    def __init__(self, site: Site, vocabulary: Vocabulary) -> None:
        self.site, self.vocabulary = site, vocabulary
        self.original = evaluate(site.text)
        self._is_string = site.kind in ("str", "bytes")
        # The words of the test outside the site, and of the site.
        self._scope = vocabulary.count_scope(site)
        self._own = Counter(RUN.findall(vocabulary.read(site.spans)))
        scope_text = vocabulary.read(cut_spans(site.scope, site.spans))
        # The text in which a candidate must not stand.
        self._tokens = scope_text if self._is_string else STRING.sub("''", scope_text)
        self._pairs = set(itertools.pairwise(run.lower() for run in RUN.findall(scope_text)))
        self._rest = vocabulary.read(cut_spans([(0, len(vocabulary.source))], site.spans))
        self._root = vocabulary.read([site.root])
        # The string in the rest of the test that is most similar to the value.
        outside = vocabulary.read(cut_spans(site.scope, [site.root, *site.spans]))
        texts = {fold_letters(match["body"]) for match in STRING.finditer(outside)} if site.kind == "str" else set()
        letters = fold_letters(site.text)
        self._input = max(sorted(texts), key=lambda text: count_common_letters(letters, text), default="")
        # Whether the file has all words of the site elsewhere.
        self.is_familiar = all(self._rate_run(run)[0] for run in RUN.findall(site.text))
        # The traits of the original that a candidate must share.
        self._order = _describe_order(self._root)
        self._profile = self._describe(site.text)
        self._relations = self._relate(site.text)
        self._like: dict[str, list[str]] = {}

    def list_like_words(self, run: str) -> list[str]:
        """Return the words of the file that are as long and as familiar as a word of the site."""
        if run not in self._like:
            rated, style, slack = self._rate_run(run), describe_style(run), 0 if run.isdigit() else 2
            self._like[run] = [
                word
                for word in self.vocabulary.words
                if abs(len(word) - len(run)) <= slack
                and word != run
                and describe_style(word) == style
                and self._rate_run(word) == rated
            ]
        return self._like[run]

    def accepts(self, candidate: str, random: Random, *, strict: bool) -> bool:
        """Return whether a candidate is wrong and has the profile of the original."""
        # A display may have an element more or less.
        is_like = candidate[0] in "([{" and self._changes_usual_words(candidate)
        if not is_like and self._describe(candidate) != self._profile:
            return False
        node = parse_literal(candidate)
        if node is None or not self._is_wrong(node, candidate):
            return False
        if isinstance(node, ast.Constant | ast.UnaryOp) and _contains_token(candidate, self._tokens):
            return False
        if strict and self._relate(candidate) != self._relations:
            return False
        has_order = _describe_order(self._replace_in_root(candidate)) == self._order
        return has_order and self._is_balanced(candidate, random)

    def _is_wrong(self, node: ast.expr, candidate: str) -> bool:
        """Return whether a candidate has the original's type, is allowed, and changes the whole expected value."""
        value = ast.literal_eval(node)
        is_part = self.site.root not in self.site.spans
        if is_part and isinstance(node, DISPLAYS) and len(value) != len(self.original):  # siblings reveal its length
            return False
        if type(value) is not type(self.original) or value == self.original or identify(node)[1] in self.site.avoid:
            return False
        before, after = parse_literal(self._root), parse_literal(self._replace_in_root(candidate))
        if before is None or after is None:  # the expected value holds more than constants
            return True
        return bool(ast.literal_eval(before) != ast.literal_eval(after))

    def _replace_in_root(self, candidate: str) -> str:
        """Return the text of the whole expected value with a candidate in place of the site."""
        start, end = self.site.root
        parts, position = [], start
        for first, last in self.site.spans:
            if start <= first and last <= end:
                parts += [self.vocabulary.read([(position, first)]), candidate]
                position = last
        return "".join([*parts, self.vocabulary.read([(position, end)])])

    def _relate(self, candidate: str) -> tuple[Any, ...]:
        """Return the checkable relations of the whole value, and of its letters to those of the input."""
        root = self._replace_in_root(candidate)
        node = parse_literal(root)
        measures = measure_display(ast.literal_eval(node)) if node else ()
        return measures, count_false_dates(root), count_common_letters(fold_letters(candidate), self._input)

    def _describe(self, text: str) -> tuple[Any, ...]:
        """Return the visible traits of a value: its sign, and of its words and numbers how many, familiar, long."""
        if self.site.kind == "bool":
            return ()
        runs = RUN.findall(text)
        if self.site.kind == "int":
            rated = [(count > 0, is_held) for count, is_held in map(self._rate_run, runs)]
            return text.startswith("-"), len(text.replace("_", "")), rated
        shapes = sorted((run.isdigit(), run.isdigit() and run[0] == "0", *self._rate_run(run)) for run in runs)
        recurs = self._is_string and text in self._rest
        digits = [(len(run), run[0] == "0") for run in runs if run.isdigit()] if self._is_string else []
        # The pairs of adjacent words that are also adjacent in the rest of the test.
        pairs = sum(pair in self._pairs for pair in itertools.pairwise(run.lower() for run in runs))
        return recurs, digits, len(runs), len(set(runs)), shapes, pairs, text.startswith("-")

    def _changes_usual_words(self, candidate: str) -> bool:
        """Return whether the words added or dropped are as familiar as most of the original's."""
        before, after = Counter(RUN.findall(self.site.text)), Counter(RUN.findall(candidate))
        usual = Counter(map(self._rate_run, before.elements())).most_common(1)
        moved = [*((before - after) + (after - before)).elements()]
        return bool(usual) and all(self._rate_run(run) == usual[0][0] for run in moved)

    def _rate_run(self, run: str) -> tuple[int, bool]:
        """Return how familiar a word is: its count in the file outside the site (at most 2), and if the test has it."""
        return min(self.vocabulary.words[run] - self._own[run], 2), self._scope[run.lower()] > 0

    def _is_balanced(self, candidate: str, random: Random) -> bool:
        """Return whether new words look as natural as old ones: more natural as often as less."""
        before, after = Counter(RUN.findall(self.site.text)), Counter(RUN.findall(candidate))
        old, new = ([run for run in runs if not run.isdigit()] for runs in (before - after, after - before))
        if not old or not new or self.site.kind == "bool":
            return True
        # Mean log probabilities of the most natural words. A larger difference would show which text is the original.
        before_rate, after_rate = (
            max(self.vocabulary.rate_word(run, self.site) for run in runs) for runs in (old, new)
        )
        change = after_rate - before_rate
        return abs(change) < 0.4 and (change >= 0) == (random.random() < 0.5)


@lru_cache(maxsize=4096)
def parse_literal(text: str) -> ast.expr | None:
    """Return the syntax tree of a literal; None for any other text."""
    match parse_quietly(wrap(text)):
        case ast.Module(body=[ast.Expr(value=node)]) if is_literal(node):
            try:
                ast.literal_eval(node)
            except (ValueError, TypeError):  # an unhashable element of a set
                return None
            return node
    return None


def _describe_order(text: str) -> tuple[Any, ...]:
    """Return, for each sequence of a literal, whether it is sorted and whether its elements differ.

    The first is None if the elements cannot be compared.
    """
    node = parse_literal(text)
    orders: list[tuple[bool | None, bool]] = []
    for display in ast.walk(node) if node else ():
        if isinstance(display, DISPLAYS):
            values = [ast.literal_eval(part) for part in list_elements(display)]
            try:
                is_sorted = values == sorted(values)
            except TypeError:
                is_sorted = None
            orders.append((is_sorted, len(set(map(repr, values))) == len(values)))
    return tuple(orders)


def list_elements(display: ast.List | ast.Tuple | ast.Set | ast.Dict) -> list[ast.expr]:
    """Return the elements of a display; of a dictionary, its values."""
    return display.values if isinstance(display, ast.Dict) else display.elts


def _contains_token(text: str, scope: str) -> bool:
    before = r"(?<![\w.])" if text[0].isalnum() else ""
    return re.search(before + re.escape(text) + (r"(?![\w.])" if text[-1].isalnum() else ""), scope) is not None


def describe_style(word: str) -> str:
    """Return the case of a word, or that it is a number."""
    return "digits" if word.isdigit() else "lower" if word.islower() else "upper" if word.isupper() else "mixed"
