from __future__ import annotations

import itertools
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_argo.steps.grading.twins.draws import Draw, bound_chance, group_tests, list_patterns, plan_runs
from swe_argo.steps.grading.twins.sites import Site, apply_changes, find_sites
from swe_argo.steps.grading.twins.vocabulary import Vocabulary

WORDS = "alpha bravo cobra delta ember fossil gravel hotel indigo jumble kernel lemon mango nickel oscar papaya".split()  # noqa: SIM905
SOURCE = (
    "words = '"
    + " ".join(f"{a}{b}" for a in WORDS for b in ("s", "er"))
    + " 111 222 333 444 555 666 777 888 999'\n"
    + "".join(
        f"def test_{n}():\n    assert f('q{n}') == '{word}'\n    assert g('q{n}') == {n + 1}37\n"
        for n, word in enumerate(WORDS)
    )
).encode()
VOCABULARIES = {"t.py": Vocabulary(SOURCE)}
SEED = b"s" * 32


def list_sites(count: int = len(WORDS)) -> dict[str, list[Site]]:
    sites: dict[str, list[Site]] = defaultdict(list)
    for site in find_sites("t.py", SOURCE, pass_to_pass=[f"test_{n}" for n in range(count)]):
        sites[site.test].append(site)
    return dict(sites)


def plan(fail_to_pass: int, pass_to_pass: int = 0, **options: object) -> Draw:
    sites = list_sites(fail_to_pass + pass_to_pass)
    names = [f"test_{n}" for n in range(fail_to_pass)]
    settings = {"vocabularies": VOCABULARIES, "seed": SEED, **options}
    return plan_runs(sites, fail_to_pass=names, **settings)  # type: ignore[arg-type]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 8), st.integers(0, 8), st.binary(min_size=16, max_size=16))
def test_runs_follow_the_rule(fail_to_pass: int, pass_to_pass: int, seed: bytes) -> None:
    draw = plan(fail_to_pass, pass_to_pass, seed=seed)
    assert draw.is_bounded
    assert draw.chance <= 1 / 8
    assert len(draw.runs) <= 6
    values: dict[str, list[str]] = defaultdict(list)
    for run in draw.runs:
        apply_changes(SOURCE, run.changes)
        assert {change.site.test for change in run.changes} == run.twins
        assert len(run.changes) == len(run.twins)
        extra_tests = [test for test in run.twins if test not in draw.with_site]
        assert 3 * len(extra_tests) >= pass_to_pass
        for change in run.changes:
            values[change.site.test].append(change.text)
    for test in draw.with_site:
        assert 0 < len(values[test]) < len(draw.runs)
        assert len(set(values[test])) == len(values[test])
    if fail_to_pass == 1:
        assert len(values["test_0"]) >= 2


def test_runs_lower_the_chance() -> None:
    assert {tests: len(plan(tests).runs) for tests in (1, 2, 3, 4, 8)} == {1: 6, 2: 4, 3: 3, 4: 2, 8: 2}


def test_draw_repeats_with_its_seed() -> None:
    assert plan(3, 4) == plan(3, 4)
    assert plan(3, 4) != plan(3, 4, number=1)
    assert plan(3, 4) != plan(3, 4, seed=b"t" * 32)


def test_few_runs_leave_draw_unbounded() -> None:
    draw = plan(1, max_runs=1)
    assert (len(draw.runs), draw.is_bounded) == (1, False)
    assert draw.chance > 1 / 8


def test_draw_without_sites_has_one_run() -> None:
    draw = plan_runs(list_sites(6), fail_to_pass=["other"], vocabularies=VOCABULARIES, seed=SEED)
    assert (len(draw.runs), draw.chance, draw.is_bounded) == (1, 1.0, False)
    assert (draw.with_site, draw.without_site) == ((), ("other",))
    assert len(draw.runs[0].twins) >= 2


def test_tests_sharing_sites_are_grouped() -> None:
    a, b, _ = list_sites(3).values()
    groups = group_tests({"x[1]": a, "x[2]": a, "y": [*b, *a]}, ["x[2]"])
    assert [(group.tests, group.sites, group.fail_to_pass) for group in groups] == [(("y",), tuple(b), False)]
    groups = group_tests({"x[1]": a, "x[2]": a, "z": b}, ["x[2]"])
    assert [(group.tests, group.fail_to_pass) for group in groups] == [(("z",), False), (("x[1]", "x[2]"), True)]


def test_group_needs_strong_sites() -> None:
    source = b"def test_it():\n    assert f(1) < 3\n"
    weak = find_sites("t.py", source, pass_to_pass=["test_it"])
    assert weak
    assert not group_tests({"test_it": weak}, ["test_it"])


def guess(calls: tuple[str, ...], pattern: tuple[bool, ...], looks: tuple[bool, ...], values: int) -> list[bool]:
    """Return for each run whether a strategy is right: ``looks`` says if the looks at original and twins are."""
    right = []
    for run, (call, is_twin) in enumerate(zip(calls, pattern, strict=True)):
        look_is_right = looks[1 + sum(pattern[:run]) % values] if is_twin else looks[0]
        right.append(look_is_right if call == "l" else (call == "t") == is_twin)
    return right


def play(tests: int, runs: int, values: int, calls: tuple[tuple[str, ...], ...], *, second_try: bool) -> float:
    """Return the chance of a strategy by listing every draw and every luck."""
    total, rate = 0.0, 0.6
    patterns = list_patterns(tests, runs)
    lucks = list(itertools.product((True, False), repeat=runs + 1))
    single = []
    for own in calls:
        outcomes: dict[tuple[tuple[bool, bool], ...], float] = defaultdict(float)
        for pattern, looks in itertools.product(patterns, lucks):
            weight = rate ** sum(looks) * (1 - rate) ** (runs + 1 - sum(looks)) / len(patterns)
            right = guess(own, pattern, looks, values)
            outcomes[tuple((good, good or not twin) for good, twin in zip(right, pattern, strict=True))] += weight
        single.append(outcomes)
    share = sum(pattern[0] for pattern in patterns) / len(patterns)  # of twins in the second try
    again = max(rate, share, 1 - share) ** tests if second_try else 0.0
    for combination in itertools.product(*(table.items() for table in single)):
        weight = 1.0
        for _, chance in combination:
            weight *= chance
        failed = [run for run in range(runs) if not all(result[run][0] for result, _ in combination)]
        forgivable = len(failed) == 1 and all(result[failed[0]][1] for result, _ in combination)
        total += weight * (1.0 if not failed else again if forgivable else 0.0)
    return total


@pytest.mark.parametrize("values", [1, 2, 4])
@pytest.mark.parametrize("second_try", [False, True])
@pytest.mark.parametrize(("tests", "runs"), [(1, 2), (1, 3), (1, 4), (2, 2), (2, 3), (3, 2)])
def test_chance_bounds_every_strategy(tests: int, runs: int, second_try: bool, values: int) -> None:
    strategies = itertools.product("otl", repeat=runs)
    best = max(
        play(tests, runs, values, calls, second_try=second_try)
        for calls in itertools.combinations_with_replacement(list(strategies), tests)
        if tests < 2 or runs < 3 or len(set(calls)) == 1
    )
    bound = bound_chance([values] * tests, runs, 0.6, second_try=second_try)
    assert best <= bound + 1e-12
    if tests == 1 or not second_try:
        assert best == pytest.approx(bound)
