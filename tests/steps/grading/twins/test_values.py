from __future__ import annotations

import ast
import itertools
import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_argo.steps.grading.twins.sites import Site, SiteChange, apply_changes, find_sites
from swe_argo.steps.grading.twins.values import CLASSIFIER_RATE, draw_value
from swe_argo.steps.grading.twins.vocabulary import RUN, Vocabulary
from tests.steps.grading.twins.sources import REPOSITORIES, list_tests

PER_REPOSITORY = 120
LIMIT = 0.6


@cache
def load(repository: str) -> list[tuple[Site, Vocabulary]]:
    pool = []
    for path in REPOSITORIES[repository]:
        source = path.read_bytes()
        vocabulary = Vocabulary(source)
        sites = find_sites(path.name, source, pass_to_pass=list_tests(source))
        pool += [(site, vocabulary) for site in sites if site.strong]
    return pool


def evaluate(text: str) -> object:
    return ast.literal_eval(f"({text}\n)")


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_value_is_wrong_and_alike(data: st.DataObject) -> None:
    repository = data.draw(st.sampled_from(sorted(REPOSITORIES)))
    site, vocabulary = data.draw(st.sampled_from(load(repository)))
    text = draw_value(site, vocabulary, Random(data.draw(st.integers(0, 2**32))))
    if text is None:
        return
    before, after = evaluate(site.text), evaluate(text)
    assert before != after
    assert type(before) is type(after)
    assert apply_changes(vocabulary.source, [SiteChange(site, text)]) != vocabulary.source
    if site.kind in ("str", "bytes"):
        quotes = [[char for char in literal if char in "'\"\n\\"] for literal in (site.text, text)]
        assert quotes[0] == quotes[1]


HEAD = "words = 'alpha bravo cobra delta erode fossil 12 13 14 15 16 17 18 19 21 22 23 24 25 26'\nassert g() is False\n"
VALUES = {
    "int": ("37", "int"),
    "negative": ("-37", "int"),
    "hexadecimal": ("0x1f", "int"),
    "float": ("37.25", "float"),
    "bool": ("True", "bool"),
    "word": ("'panic'", "str"),
    "raw": ("r'\\d panic'", "str"),
    "escape": ("'\\x41\\n panic'", "str"),
    "directive": ("'%s panic'", "str"),
    "bytes": ("b'panic'", "bytes"),
    "joined": ("'one' \"two\"", "str"),
    "list": ("[31, 45, 38]", "list"),
    "tuple": ("(45, 31, 38)", "tuple"),
    "dictionary": ("{'a': 45, 'b': 31, 'c': 38}", "dict"),
}


@pytest.mark.parametrize(("text", "kind"), VALUES.values(), ids=VALUES)
def test_value_of_each_kind(text: str, kind: str) -> None:
    source = f"{HEAD}def test_it():\n    assert f('x') == {text}\n".encode()
    site = next(site for site in find_sites("t.py", source, pass_to_pass=["test_it"]) if site.text == text)
    drawn = {draw_value(site, Vocabulary(source), Random(seed)) for seed in range(20)} - {None}
    assert drawn
    for value in drawn:
        assert value is not None
        assert type(evaluate(value)).__name__ == kind
        assert value[:1] == text[:1] or value[:1].isdigit() or kind == "bool"
        for part in ("\\d", "\\x41\\n", "%s"):
            assert (part in value) == (part in text)


@pytest.mark.parametrize("text", ["''", "'-'", "0.0", "[]", "1", "True"])
def test_value_is_none_without_likeness(text: str) -> None:
    source = f"def test_it():\n    assert f(0, 2, 3, 4, 5, 6, 7, 8, 9, False) == {text}\n".encode()
    for site in find_sites("t.py", source, pass_to_pass=["test_it"]):
        assert draw_value(site, Vocabulary(source), Random(1)) is None


def test_value_avoids_earlier_values() -> None:
    base = b"def test_it():\n    assert f('x') is False\n"
    source = b"def test_it():\n    assert f('x') is True\n"
    (site,) = find_sites("t.py", source, fail_to_pass=["test_it"], added_lines={2}, base=base)
    assert draw_value(site, Vocabulary(source), Random(1)) is None


STRICT = {
    "sum": ("f([3, 7])", "['0.34', '0.00', '0.66']", lambda value: sum(map(float, value)) == 1),
    "date": ("f('x')", "'03-31'", lambda value: value not in ("02-31", "06-31")),
    "letters": ("f('\u0141\u00f3d\u017a')", "'lodz'", lambda value: value.endswith("odz")),
    "length": ("f('x')", "['panic', 'bravo', 'fossil']", lambda value: len(value) == 3),
}


@pytest.mark.parametrize(("call", "text", "holds"), STRICT.values(), ids=STRICT)
def test_strict_value_keeps_invariants(call: str, text: str, holds: Callable[[object], bool]) -> None:
    source = f"{HEAD}days = '02 06 28 30'\ndef test_it():\n    assert {call} == {text}\n".encode()
    site = next(site for site in find_sites("t.py", source, pass_to_pass=["test_it"]) if site.text == text)
    drawn = {draw_value(site, Vocabulary(source), Random(seed), strict=True) for seed in range(20)} - {None}
    assert drawn
    assert all(holds(evaluate(value)) for value in drawn if value is not None)


def test_value_is_new_and_follows_its_seed() -> None:
    source = f"{HEAD}def test_it():\n    assert f('x') == 37\n".encode()
    (site,) = find_sites("t.py", source, pass_to_pass=["test_it"])
    used: list[str] = []
    for seed in range(8):
        value = draw_value(site, Vocabulary(source), Random(seed), used)
        assert value == draw_value(site, Vocabulary(source), Random(seed), used)
        used += [value] if value is not None else []
    assert len(used) == len(set(used)) > 1


def look(site: Site, vocabulary: Vocabulary, text: str) -> dict[str, float]:
    """Return features of a shown value, read from the file that shows it."""
    file = without(vocabulary, [(0, len(vocabulary.source))], site)
    scope = without(vocabulary, site.scope, site)
    in_file, in_scope = Counter(RUN.findall(file)), Counter(RUN.findall(scope.lower()))
    neighbours = set(itertools.pairwise(RUN.findall(scope.lower())))
    runs = RUN.findall(text)
    lower = [run.lower() for run in runs]
    count = max(len(runs), 1)
    value = evaluate(text)
    items = list(value) if isinstance(value, list | tuple) else []
    likely = [vocabulary.rate_word(run, site) for run in runs]
    number = abs(value) if isinstance(value, int | float) and not isinstance(value, bool) else -1.0
    return {
        "known words": sum(in_file[run] > 0 for run in runs) / count,
        "all known": float(all(in_file[run] > 0 for run in runs)),
        "frequency": sum(math.log1p(in_file[run]) for run in runs) / count,
        "recurs in file": float(text in file),
        "recurs in test": float(text in scope),
        "words of the input": sum(in_scope[run] > 0 for run in lower) / count,
        "order of the input": sum(pair in neighbours for pair in itertools.pairwise(lower)) / count,
        "is sorted": float([*map(repr, items)] == sorted(map(repr, items))),
        "repeats": count - len(set(runs)),
        "length": math.log(len(text)),
        "words": len(runs),
        "capitals": sum(char.isupper() for char in text),
        "likely letters": sum(likely) / count,
        "unlikeliest word": min(likely, default=0.0),
        "true": float(value is True),
        "number": math.log1p(number) if 0 <= number < 1e300 else -1.0,
        "last digit": float(text[-1]) if text[-1].isdigit() else -1.0,
        "first digit": float(text[0]) if text[0].isdigit() else -1.0,
    }


def without(vocabulary: Vocabulary, spans: object, site: Site) -> str:
    """Return the text of some spans with the site cut out."""
    parts = []
    for start, end in spans:  # type: ignore[attr-defined]
        for first, last in site.spans:
            if start <= first and last <= end:
                parts.append(vocabulary.source[start:first])
                start = last  # noqa: PLW2901
        parts.append(vocabulary.source[start:end])
    return b"\n".join(parts).decode(vocabulary.encoding)


def draw_sights() -> list[tuple[bool, dict[str, float]]]:
    """Return values as FAIL_TO_PASS tests get them: whether the twin is shown, and features of what is shown."""
    random, sights = Random(29), []
    for repository in REPOSITORIES:
        pool, drawn = random.sample(load(repository), len(load(repository))), 0
        for site, vocabulary in pool:
            text = draw_value(site, vocabulary, random, strict=True) if drawn < PER_REPOSITORY else None
            if text is not None:
                drawn += 1
                is_twin = random.random() < 0.5
                sights.append((is_twin, look(site, vocabulary, text if is_twin else site.text)))
    random.shuffle(sights)
    return sights


def test_classifier_cannot_tell_values() -> None:
    sights = draw_sights()
    assert len(sights) >= 200
    half = len(sights) // 2
    rows = np.array([list(features.values()) for _, features in sights])
    labels = np.array([is_twin for is_twin, _ in sights])
    rates = {name: judge_feature(rows[:, at], labels, half) for at, name in enumerate(sights[0][1])}
    rates["all"] = judge_logistic(rows, labels, half)
    assert {name: rate for name, rate in rates.items() if rate > LIMIT} == {}
    turns = range(0, len(sights), half // 4)
    turned = [judge_logistic(np.roll(rows, turn, axis=0), np.roll(labels, turn), half) for turn in turns]
    assert sum(turned) / len(turned) <= CLASSIFIER_RATE, turned


def judge_feature(column: np.ndarray, labels: np.ndarray, half: int) -> float:
    """Return how often the best threshold of one half is right in the other."""
    tries = [(sign, limit) for sign in (1, -1) for limit in np.unique(column[:half])]
    sign, limit = max(
        tries, key=lambda choice: ((choice[0] * column[:half] >= choice[0] * choice[1]) == labels[:half]).mean()
    )
    return float(((sign * column[half:] >= sign * limit) == labels[half:]).mean())


def judge_logistic(rows: np.ndarray, labels: np.ndarray, half: int) -> float:
    """Return how often a logistic regression of one half is right in the other."""
    scaled = (rows - rows[:half].mean(0)) / (rows[:half].std(0) + 1e-9)
    scaled = np.c_[scaled, np.ones(len(scaled))]
    weights = np.zeros(scaled.shape[1])
    for _ in range(2000):
        guesses = 1 / (1 + np.exp(-scaled[:half] @ weights))
        weights -= 0.1 * (scaled[:half].T @ (guesses - labels[:half]) / half + 0.01 * weights)
    return float(((scaled[half:] @ weights > 0) == labels[half:]).mean())
