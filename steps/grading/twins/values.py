"""Values: wrong values for sites, drawn so that nothing about one tells that it is wrong.

A candidate counts only if it has the profile of the original: as many words, each as familiar to the file and to the
test's input, the same order of lists, a number of the same shape. Who sees one of the two cannot tell which it is,
beyond ``CLASSIFIER_RATE`` (measured in the tests).
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from random import Random
from typing import Any

from steps.grading.twins.sites import Site
from steps.grading.twins.syntax import (
    DISPLAYS,
    Span,
    decode_source,
    identify,
    is_literal,
    iterate_literals,
    parse_quietly,
)

CLASSIFIER_RATE = 0.55
"""The share of values that a classifier judges rightly, as measured in the tests: half is pure guessing."""
TRIES = 300
RUN = re.compile(r"[^\W\d_]+|\d+")
"""A word or a number inside a text."""
FIXED = re.compile(
    r"\\(?:N\{[^}]*\}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|[\s\S])|%[-#0 +\d.]*[a-zA-Z]"
)
"""Escapes and format directives of a string, which keep their text."""
STRING = re.compile(
    r"(?P<prefix>[a-zA-Z]*)(?P<quote>'''|\"\"\"|'|\")(?P<body>(?:\\[\s\S]|(?!(?P=quote))[\s\S])*)(?P=quote)"
)
VOWELS = "aeiouy"


class Vocabulary:
    """The words and numbers of a test file, and of further files of its repository."""

    def __init__(self, source: bytes, others: Iterable[bytes] = ()) -> None:
        self.source = source
        self.encoding = decode_source(source)[1]
        text = decode_source(source)[0]
        self.words = Counter(RUN.findall(text))
        self.other_words = Counter(word for other in others for word in RUN.findall(other.decode(errors="replace")))
        self.constants: dict[str, Counter[str]] = {}
        """The source texts of the file's constants, by type."""
        for node, value in iterate_literals(parse_quietly(source) or ast.Module([], [])):
            if not isinstance(value, str | bytes):
                self.constants.setdefault(type(value).__name__, Counter())[ast.unparse(node)] += 1
        self._pairs = _count_letter_pairs(self.words)
        self._firsts = Counter[str]()
        for (first, _), count in self._pairs.items():
            self._firsts[first] += count
        self._contexts: dict[tuple[Any, ...], Counter[str]] = {}
        self._styles: dict[tuple[str, bool], list[str]] = {}

    def rate_word(self, word: str, site: Site) -> float:
        """Return the mean log probability of the letter pairs of a word in this file, the site left out."""
        own = Counter(RUN.findall(self.read(site.spans)))
        left_out = _count_letter_pairs(run for run, count in own.items() if self.words[run] == count)
        pairs = _list_letter_pairs(word)
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

    def list_words(self, style: str, *, of_others: bool) -> list[str]:
        """Return the distinct words of a style: of this file, or of the further files."""
        key = style, of_others
        if key not in self._styles:
            words = self.other_words if of_others else self.words
            self._styles[key] = [word for word in words if _style(word) == style]
        return self._styles[key]


def draw_value(site: Site, vocabulary: Vocabulary, random: Random, used: Collection[str] = ()) -> str | None:
    """Return the source text of a wrong value like the site's own; None if none can be drawn.

    Args:
        site: A site of the file that ``vocabulary`` was made of.
        vocabulary: The words and numbers to draw from.
        random: The source of randomness.
        used: Texts drawn before, which are not drawn again.
    """
    judge = _Judge(site, vocabulary)
    for _ in range(TRIES):
        candidate = _mutate(site.text, site.kind, vocabulary, random)
        if candidate is not None and candidate not in used and judge.accepts(candidate, random):
            return candidate
    return None


class _Judge:
    """Compares candidates for one site with its original."""

    def __init__(self, site: Site, vocabulary: Vocabulary) -> None:
        self.site, self.vocabulary = site, vocabulary
        self.scope = vocabulary.count_scope(site)
        self.own = Counter(RUN.findall(vocabulary.read(site.spans)))
        self.original = ast.literal_eval(_wrap(site.text))
        self.held = vocabulary.read(_cut(site.scope, site.spans))
        self.pairs = set(itertools.pairwise(run.lower() for run in RUN.findall(self.held)))
        self.rest = vocabulary.read(_cut([(0, len(vocabulary.source))], site.spans))
        self.root = vocabulary.read([site.root])
        self.order = _describe_order(self.root)
        self.profile = self._profile(site.text)

    def accepts(self, candidate: str, random: Random) -> bool:
        """Return whether a candidate is wrong and has the profile of the original."""
        is_display = candidate[0] in "([{"
        if not is_display and self._profile(candidate) != self.profile:
            return False
        node = _parse_literal(candidate)
        if node is None or not self._is_wrong(node, candidate):
            return False
        if isinstance(node, ast.Constant | ast.UnaryOp) and _stands_in(candidate, self.held):
            return False
        if is_display and self._profile(candidate) != self.profile and not self._keeps_mix(candidate):
            return False
        return self._keeps_order(candidate) and self._balance(candidate, random)

    def _is_wrong(self, node: ast.expr, candidate: str) -> bool:
        value = ast.literal_eval(node)
        is_part = self.site.root not in self.site.spans
        if is_part and isinstance(node, DISPLAYS) and len(value) != len(self.original):  # its siblings tell its length
            return False
        if type(value) is not type(self.original) or value == self.original or identify(node)[1] in self.site.avoid:
            return False
        before, after = _parse_literal(self.root), _parse_literal(self._replace_in_root(candidate))
        if before is None or after is None:  # the expected value holds more than constants
            return True
        return bool(ast.literal_eval(before) != ast.literal_eval(after))

    def _replace_in_root(self, candidate: str) -> str:
        start, end = self.site.root
        parts, position = [], start
        for first, last in self.site.spans:
            if start <= first and last <= end:
                parts += [self.vocabulary.read([(position, first)]), candidate]
                position = last
        return "".join([*parts, self.vocabulary.read([(position, end)])])

    def _keeps_order(self, candidate: str) -> bool:
        return _describe_order(self._replace_in_root(candidate)) == self.order

    def _profile(self, text: str) -> tuple[Any, ...]:
        runs = RUN.findall(text)
        shapes = sorted((run.isdigit(), run.isdigit() and run[0] == "0", *self._rate_run(run)) for run in runs)
        recurs = self.site.kind in ("str", "bytes") and text in self.rest
        number = None
        if self.site.kind in ("int", "float", "complex"):
            digits = text.replace("_", "")
            number = (text.startswith("-"), len(digits), len(digits) - len(digits.rstrip("0")), "." in digits)
        return recurs, len(runs), len(set(runs)), shapes, self._count_pairs(runs), number

    def _keeps_mix(self, candidate: str) -> bool:
        """Return whether the words added or dropped are as familiar as most of the original's."""
        before, after = Counter(RUN.findall(self.site.text)), Counter(RUN.findall(candidate))
        usual = Counter(map(self._rate_run, before.elements())).most_common(1)
        moved = [*((before - after) + (after - before)).elements()]
        return bool(usual) and all(self._rate_run(run) == usual[0][0] for run in moved)

    def _count_pairs(self, runs: list[str]) -> int:
        """Return how many neighbouring words of a value are neighbours in the rest of the test too."""
        return sum(pair in self.pairs for pair in itertools.pairwise(run.lower() for run in runs))

    def _rate_run(self, run: str) -> tuple[int, bool]:
        """Return how familiar a run is: to the file outside the site, and to the test."""
        return min(self.vocabulary.words[run] - self.own[run], 2), self.scope[run.lower()] > 0

    def _balance(self, candidate: str, random: Random) -> bool:
        """Return whether new words look as natural as old ones: as often more as less."""
        before, after = Counter(RUN.findall(self.site.text)), Counter(RUN.findall(candidate))
        old, new = ([run for run in each if not run.isdigit()] for each in (before - after, after - before))
        if not old or not new:
            return True
        change = self._rate_words(new) - self._rate_words(old)
        return abs(change) < 0.4 and (change >= 0) == (random.random() < 0.5)

    def _rate_words(self, words: list[str]) -> float:
        return max(self.vocabulary.rate_word(word, self.site) for word in words)


def _list_letter_pairs(word: str) -> list[tuple[str, str]]:
    return list(itertools.pairwise(f"^{word.lower()}$"))


def _count_letter_pairs(words: Iterable[str]) -> Counter[tuple[str, str]]:
    return Counter(pair for word in words for pair in _list_letter_pairs(word))


def _cut(spans: Iterable[Span], holes: Iterable[Span]) -> list[Span]:
    """Return spans without the holes in them."""
    parts = list(spans)
    for first, last in holes:
        parts = [
            piece
            for start, end in parts
            for piece in ([(start, first), (last, end)] if start <= first and last <= end else [(start, end)])
        ]
    return parts


def _wrap(text: str) -> str:
    """Return an expression in brackets, so that it may run over lines."""
    return f"({text}\n)"


@lru_cache(maxsize=4096)
def _parse_literal(text: str) -> ast.expr | None:
    """Return the syntax tree of a literal; None if it is another expression or none."""
    tree = parse_quietly(_wrap(text))
    if (
        tree is None
        or len(tree.body) != 1
        or not isinstance(tree.body[0], ast.Expr)
        or not is_literal(tree.body[0].value)
    ):
        return None
    try:
        ast.literal_eval(tree.body[0].value)
    except (ValueError, TypeError):  # an unhashable element of a set
        return None
    return tree.body[0].value


def _describe_order(text: str) -> tuple[Any, ...]:
    """Return, for each sequence of a literal, whether it is sorted and whether its elements differ."""
    node = _parse_literal(text)
    found: list[tuple[bool | None, bool]] = []
    for each in ast.walk(node) if node else ():
        if isinstance(each, ast.List | ast.Tuple | ast.Set | ast.Dict):
            parts = each.values if isinstance(each, ast.Dict) else each.elts
            values = [ast.literal_eval(part) for part in parts]
            try:
                is_sorted = values == sorted(values)
            except TypeError:
                is_sorted = None
            found.append((is_sorted, len(set(map(repr, values))) == len(values)))
    return tuple(found)


def _stands_in(text: str, scope: str) -> bool:
    """Return whether a literal stands in a text as a token of its own."""
    before = r"(?<![\w.])" if text[0].isalnum() else ""
    return re.search(before + re.escape(text) + (r"(?![\w.])" if text[-1].isalnum() else ""), scope) is not None


# Kinds of change. Each returns a text, or None if it does not apply.


def _mutate(text: str, kind: str, vocabulary: Vocabulary, random: Random) -> str | None:
    if kind == "bool":
        return {"True": "False", "False": "True"}[text]
    if kind in ("str", "bytes"):
        return _mutate_string(text, vocabulary, random)
    if kind in ("int", "float", "complex"):
        return random.choice([_replace_digit, _exchange_digits, _take_number, _take_number, _shift_number])(
            text, kind, vocabulary, random
        )
    changes = [_exchange_elements, _drop_element, _add_element] if kind in ("list", "set") else [_exchange_elements]
    return random.choice(changes)(text, vocabulary, random)


def _mutate_string(text: str, vocabulary: Vocabulary, random: Random) -> str | None:
    """Return a string literal with one word, letter or digit changed, or two exchanged."""
    runs = list(_iterate_runs(text))
    if not runs:
        return None
    start, end = random.choice(runs)
    run = text[start:end]
    if run.isdigit():
        new = random.choice([_replace_run_digit, _take_word, _exchange_letters])(run, vocabulary, random)
    else:
        new = random.choice([_take_word, _take_word, _replace_letter, _exchange_letters])(run, vocabulary, random)
    if new is None or random.random() < 0.15:
        return _exchange_runs(text, runs, random)
    return text[:start] + new + text[end:]


def _iterate_runs(text: str) -> Iterator[tuple[int, int]]:
    """Yield the words and numbers of a string literal, without its prefixes, escapes and directives."""
    for token in STRING.finditer(text):
        body, first = token["body"], token.start("body")
        fixed = [match.span() for match in FIXED.finditer(body)]
        position = 0
        for start, end in [*fixed, (len(body), len(body))]:
            yield from (
                (first + position + a, first + position + b)
                for a, b in (match.span() for match in RUN.finditer(body[position:start]))
            )
            position = end


def _style(word: str) -> str:
    return "digits" if word.isdigit() else "lower" if word.islower() else "upper" if word.isupper() else "mixed"


def _take_word(run: str, vocabulary: Vocabulary, random: Random) -> str | None:
    """Return another word of the file, or of the further files, of about the same length."""
    pool = vocabulary.list_words(_style(run), of_others=bool(vocabulary.other_words) and random.random() < 0.5)
    slack = 0 if run.isdigit() else 2
    like = [word for word in pool if word != run and abs(len(word) - len(run)) <= slack]
    return random.choice(like) if like else None


def _replace_letter(run: str, vocabulary: Vocabulary, random: Random) -> str | None:
    place = random.randrange(len(run))
    letter = run[place]
    letters = {each for word in vocabulary.words for each in word}
    like = sorted(
        each
        for each in letters
        if each != letter
        and each.isalpha()
        and each.islower() == letter.islower()
        and (each.lower() in VOWELS) == (letter.lower() in VOWELS)
    )
    return run[:place] + random.choice(like) + run[place + 1 :] if like else None


def _exchange_letters(run: str, vocabulary: Vocabulary, random: Random) -> str | None:  # noqa: ARG001
    places = [i for i in range(len(run) - 1) if run[i] != run[i + 1] and run[i].islower() == run[i + 1].islower()]
    if not places:
        return None
    place = random.choice(places)
    return run[:place] + run[place + 1] + run[place] + run[place + 2 :]


def _replace_run_digit(run: str, vocabulary: Vocabulary, random: Random) -> str | None:
    return _replace_digit(run, "str", vocabulary, random)


def _exchange_runs(text: str, runs: list[tuple[int, int]], random: Random) -> str | None:
    """Return a string with two of its words of one kind exchanged."""
    pairs = [
        (a, b)
        for a, b in itertools.combinations(runs, 2)
        if text[slice(*a)] != text[slice(*b)] and _style(text[slice(*a)]) == _style(text[slice(*b)])
    ]
    return _exchange(text, *random.choice(pairs)) if pairs else None


def _exchange(text: str, first: tuple[int, int], second: tuple[int, int]) -> str:
    (a, b), (c, d) = first, second
    return text[:a] + text[c:d] + text[b:c] + text[a:b] + text[d:]


def _replace_digit(text: str, kind: str, vocabulary: Vocabulary, random: Random) -> str | None:  # noqa: ARG001
    prefix = 2 if text[:2].lower() in ("0x", "0o", "0b") else 0
    digits = "01" if text[:2].lower() == "0b" else "01234567" if text[:2].lower() == "0o" else "0123456789"
    places = [i for i in range(prefix, len(text)) if text[i] in digits]
    if not places:
        return None
    place = random.choice(places)
    return text[:place] + random.choice(digits) + text[place + 1 :]


def _exchange_digits(text: str, kind: str, vocabulary: Vocabulary, random: Random) -> str | None:  # noqa: ARG001
    prefix = 2 if text[:2].lower() in ("0x", "0o", "0b") else 0
    places = [i for i in range(prefix, len(text) - 1) if text[i].isdigit() and text[i + 1].isdigit()]
    if not places:
        return None
    place = random.choice(places)
    return _exchange(text, (place, place + 1), (place + 1, place + 2))


def _take_number(text: str, kind: str, vocabulary: Vocabulary, random: Random) -> str | None:  # noqa: ARG001
    pool = vocabulary.constants.get(kind)
    return random.choices([*pool], [*pool.values()])[0] if pool else None


def _shift_number(text: str, kind: str, vocabulary: Vocabulary, random: Random) -> str | None:  # noqa: ARG001
    if kind != "int" or not re.fullmatch(r"-?\d+", text):
        return None
    return str(int(text) + random.choice([-3, -2, -1, 1, 2, 3]))


def _locate_elements(text: str) -> list[tuple[int, int]] | None:
    """Return where the elements of a display stand (of a dictionary, the values); None if it is not plain ASCII."""
    node = _parse_literal(text)
    if not isinstance(node, DISPLAYS) or not text.isascii():
        return None
    starts = [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", _wrap(text)))]
    parts = node.values if isinstance(node, ast.Dict) else node.elts
    return [
        (
            starts[part.lineno - 1] + part.col_offset - 1,
            starts[(part.end_lineno or 1) - 1] + (part.end_col_offset or 0) - 1,
        )
        for part in parts
    ]


def _exchange_elements(text: str, vocabulary: Vocabulary, random: Random) -> str | None:  # noqa: ARG001
    places = _locate_elements(text)
    pairs = [(a, b) for a, b in itertools.combinations(places or [], 2) if text[slice(*a)] != text[slice(*b)]]
    return _exchange(text, *random.choice(pairs)) if pairs else None


def _drop_element(text: str, vocabulary: Vocabulary, random: Random) -> str | None:  # noqa: ARG001
    places = _locate_elements(text)
    if not places or len(places) < 3 or "\n" in text:
        return None
    index = random.randrange(len(places))
    if index:
        return text[: places[index - 1][1]] + text[places[index][1] :]
    return text[: places[0][0]] + text[places[1][0] :]


def _add_element(text: str, vocabulary: Vocabulary, random: Random) -> str | None:
    places = _locate_elements(text)
    if not places or len(places) < 2 or "\n" in text:
        return None
    start, end = random.choice(places)
    node = _parse_literal(text[start:end])
    if node is None:
        return None
    new = _mutate(text[start:end], identify(node)[0], vocabulary, random)
    if new is None:
        return None
    place, _ = random.choice(places)
    return text[:place] + new + text[places[0][1] : places[1][0]] + text[place:]
