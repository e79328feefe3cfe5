"""Neighbours: inputs that are found and changed, values that are recorded and used, and what comes of a patch."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.verdict import Confirmation, ConfirmationOutcome
from swe_argo.steps.errors import InfraError
from swe_argo.steps.grading.twins.ids import locate_tests, rename_test
from swe_argo.steps.grading.twins.neighbours import (
    draw_neighbour,
    find_inputs,
    has_one_answer,
    plan_neighbours,
    read_records,
    write_recorder,
)
from swe_argo.steps.grading.twins.sites import Site, SiteChange, apply_changes, find_sites
from swe_argo.steps.grading.twins.vocabulary import Vocabulary
from tests.steps.grading.twins import made_tests as made
from tests.steps.grading.twins.made_tests import (
    PATCH,
    PATH,
    REFERENCE,
    Behaviour,
    MadeTests,
    Statuses,
    fail_all,
    honest,
    pass_all,
    validate,
)
from tests.steps.grading.twins.sources import REPOSITORIES, list_tests

HARD_CODED = b"table"
LATER = range(2, 99)
"""The runs of a patch after two that confirm it."""
ROWS = """
import pytest

@pytest.mark.parametrize(("title", "most", "slug"), [("one two", 7, "one-two"), pytest.param("a b", 3, "a-b", id="x")])
def test_rows(title, most, slug):
    assert f(title, most) == slug
"""


def find_whole(source: str) -> list[Site]:
    """Return the strong sites that are a whole expected value."""
    data = source.encode()
    sites = find_sites("t.py", data, pass_to_pass=list_tests(data))
    return [site for site in sites if site.strong and site.spans == (site.root,)]


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        ("assert f('a b', 3) == 'a'", [["'a b'", "3"]]),
        ("assert 'a' == f(g(['x', 'y']), key=-2)", [["['x', 'y']", "-2"]]),
        ("assert f('a') == 1\n    assert f('b') == 2", [["'a'"], ["'b'"]]),
        ("self.assertEqual(f('a'), 1, 'why')", [["'a'"]]),
        ("for x, y in [('a', 1), ('b', 2)]:\n        assert f(x) == y", [["'a'"], ["'b'"]]),
        ("assert f('a') + g('a') == 2", [["'a'"]]),
        ("x = f('a')\n    assert x == 1", [[]]),
        ("assert f(f'{x}', []) == 1", [[]]),
        ("with pytest.raises(E) as caught:\n        f('a')\n    assert str(g(caught, 'b')) == 'c'", [[]]),
    ],
)
def test_inputs_are_found_beside_value(body: str, inputs: list[list[str]]) -> None:
    source = f"def test_it(self):\n    {body}\n"
    assert [[value.text for value in find_inputs(source.encode(), site)] for site in find_whole(source)] == inputs


def test_row_inputs_are_its_other_cells() -> None:
    inputs = [[value.text for value in find_inputs(ROWS.encode(), site)] for site in find_whole(ROWS)]
    assert inputs == [['"one two"', "7"], ['"a b"', "3"]]


def test_recurring_input_changes_fully() -> None:
    source = "def test_it():\n    assert f('ab') + g('ab') == 'xyz'\n"
    (site,) = find_whole(source)
    change = draw_neighbour(site, Vocabulary(source.encode()), Random(0))
    assert change is not None
    changed = apply_changes(source.encode(), [change]).decode()
    assert "'ab'" not in changed
    assert "== 'xyz'" in changed


@pytest.mark.parametrize("path", [paths[0] for paths in REPOSITORIES.values()], ids=lambda path: path.name)
def test_real_neighbours_are_alike(path: Path) -> None:
    if not path.exists():
        pytest.skip(f"{path} is not installed here")
    source = path.read_bytes()
    vocabulary, random = Vocabulary(source), Random(7)
    for site in find_whole(source.decode())[:8]:
        change = draw_neighbour(site, vocabulary, random)
        if change is None:
            continue
        changed = apply_changes(source, [change])
        assert changed != source
        assert changed.count(b"\n") == source.count(b"\n")
        compile(changed, str(path), "exec")


def record(source: str, names: dict[str, Any]) -> list[list[Any]]:
    """Run every test with a recorder in place of its expected value; return what each recorded."""
    records = []
    for site in find_whole(source):
        changed = apply_changes(source.encode(), [SiteChange(site, write_recorder(site, "mark"))])
        assert changed.count(b"\n") == source.count("\n")
        space = dict(names)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(changed, space)
            with pytest.raises(AssertionError):
                space[site.test]()
        atexit.unregister(print)
        log = b"".join([changed, b">   assert\nE   ", printed.getvalue().encode(), b"= 1 failed"])
        records.append(read_records(log, "mark"))
    return records


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.binary()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(VALUES)
def test_recorder_prints_the_value(value: Any) -> None:
    (values,) = record("def test_it():\n    assert f('a') == [\n        'x',\n    ]\n", {"f": lambda _: value})
    assert [repr(item) for item in values] == [repr(value)]


@pytest.mark.parametrize("command", ["pytest -q -rA", "pytest --tb=no --show-capture=no", "unittest", "unittest -b"])
def test_recorder_reaches_the_log(command: str, tmp_path: Path) -> None:
    source = "import unittest\nclass T(unittest.TestCase):\n def test_it(self):\n  self.assertEqual(list('ab'), [3])\n"
    (site,) = find_whole(source)
    changed = apply_changes(source.encode(), [SiteChange(site, write_recorder(site, "mark"))])
    (tmp_path / "test_it.py").write_bytes(changed)
    words = [sys.executable, "-m", *command.split(), *(["test_it.py"] if "pytest" in command else ["test_it"])]
    env = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    run = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False, env=env)
    assert run.returncode == 1
    assert read_records(run.stdout + run.stderr, "mark") == [["a", "b"]]


@pytest.mark.parametrize("value", [object(), len, {1, 2}.__iter__(), float("nan"), float("inf")])
def test_non_literal_has_no_record(value: Any) -> None:
    assert record("def test_it():\n    assert f('a') == 3\n", {"f": lambda _: value}) == [[...]]


@pytest.mark.parametrize(
    "log", [b"", b"mark", b'mark "', b'mark "\\x"', b"other \"'a'\"", b'mark "' + b"(" * 9999 + b'"']
)
def test_broken_records_are_ignored(log: bytes) -> None:
    assert read_records(log, "mark") in ([], [...])


ANSWERS: list[tuple[Any, Any]] = [(3, 12), ("one two", "a b"), ([1, 2], [3]), ({"a": 1}, {"b": 2})]
NO_ANSWERS: list[tuple[Any, Any]] = [
    *((0, 12), (-3, 12), (True, 1), (0.5, 0.5), (True, True), (None, None), (b"a", b"a"), ([1, None], [1, None])),
    *(("", "a"), ("a  b", "a b"), ("a\nb", "a b"), ("<C at 0x7f3a1c2b>", "<C>"), (None, "a"), ({1, 2}, {1, 3})),
    *(([{1}], [{2}]), (["a", None], ["b"]), ([], [1]), ("x" * 5000, "x")),
]


def test_has_one_answer_by_value() -> None:
    assert [pair for pair in ANSWERS + NO_ANSWERS if has_one_answer(*pair)] == ANSWERS


class Solutions(MadeTests):
    """Tests whose reference answers every input; the untouched repository answers none."""

    def __init__(self) -> None:
        super().__init__(4)
        right = {"f": lambda x: self.words.get(x) or f"word{x}", "g": lambda x: self.numbers.get(x) or 700 + len(x)}
        wrong = {"f": lambda _: None, "g": lambda _: None}
        hard_coded = {"f": self.words.get, "g": self.numbers.get}
        self.answers = {REFERENCE: right, b"": wrong, PATCH: right, HARD_CODED: hard_coded}
        self.behaviours = dict.fromkeys(self.answers, honest)


def confirm_solution(patch: bytes, tests: MadeTests | None = None, **changes: Any) -> Confirmation:
    return made.confirm_patch(tests or Solutions(), patch, **changes)[0]


def test_neighbours_use_reference_values() -> None:
    tests = Solutions()
    twins = validate(tests)
    assert len(twins.neighbours) >= 4
    (file,) = tests.find_files({PATH: None}, twins.passed)
    plan = plan_neighbours(tests, [file], twins, b"seed")
    assert plan is not None
    statuses = tests.evaluate(plan.expected.contents[PATH], REFERENCE)
    assert {test for test, status in statuses.items() if status == "FAILED"} == set(plan.expected.twins)
    assert len(plan.expected.twins) == len(twins.neighbours) // 2
    assert plan.expected.originals | set(plan.expected.twins) == set(twins.passed)


def test_neighbours_must_fail_untouched() -> None:
    tests = Solutions()
    tests.answers[b""] = tests.answers[REFERENCE]
    assert not validate(tests).neighbours


def test_neighbours_need_stable_answers() -> None:
    tests, calls = Solutions(), iter(range(10**6))
    tests.answers[REFERENCE] = {
        "f": lambda x: tests.words.get(x) or f"word{next(calls)}",
        "g": lambda x: tests.numbers.get(x) or 700 + next(calls),
    }
    for neighbour in validate(tests).neighbours:  # inputs that are other tests' own, with one answer
        assert neighbour.text.strip("'") in tests.words


def test_neighbour_draw_follows_the_seed() -> None:
    tests = Solutions()
    twins = validate(tests)
    files = tests.find_files({PATH: None}, twins.passed)
    draws = [plan_neighbours(tests, files, twins, seed) for seed in (b"1", b"1", b"2", b"3")]
    twins_of = [set(plan.expected.twins) for plan in draws if plan]
    assert twins_of[0] == twins_of[1]
    assert len(set(map(frozenset, twins_of))) > 1


def test_confirmation_reports_generality() -> None:
    fix, table = confirm_solution(PATCH), confirm_solution(HARD_CODED)
    assert fix.outcome is table.outcome is ConfirmationOutcome.CONFIRMED
    assert (fix.general, fix.general_reason) == (True, "")
    assert fix.neighbours is not None
    assert fix.neighbours.passed == fix.neighbours.total >= 4
    assert table.neighbours is not None
    assert (table.general, table.neighbours.passed < table.neighbours.total) == (False, True)
    assert table.general_reason.endswith(" first")


@pytest.mark.parametrize(
    ("of_patch", "of_reference", "general"),
    [
        (made.only_in(range(2, 3), fail_all), honest, True),
        (made.only_in(LATER, fail_all), honest, False),
        (made.only_in(LATER, pass_all), honest, False),
        (made.only_in(LATER, lambda *_: "timeout"), honest, False),
        (made.only_in(LATER, fail_all), made.only_in(range(7, 99), fail_all), None),
    ],
    ids=["falls once", "falls", "passes twins", "hangs", "reference falls too"],
)
def test_generality_by_behaviour(of_patch: Behaviour, of_reference: Behaviour, general: bool | None) -> None:
    tests = Solutions()
    twins = validate(tests)
    tests.run_files.clear()
    tests.behaviours = dict.fromkeys(tests.answers, honest) | {PATCH: of_patch}
    tests.behaviours[REFERENCE] = lambda statuses, number: of_reference(statuses, number + 7)
    confirmation = confirm_solution(PATCH, tests, twins=twins)
    assert confirmation.outcome is ConfirmationOutcome.CONFIRMED
    assert confirmation.general is general
    assert (confirmation.neighbours is None) is (general is None)


@pytest.mark.parametrize("error", [InfraError(FailureClass.SANDBOX_LOST, "lost"), SystemExit(143)])
def test_lost_run_keeps_the_confirmation(error: BaseException) -> None:
    tests = Solutions()
    twins = validate(tests)
    tests.run_files.clear()

    def lose(statuses: Statuses, number: int) -> Statuses:
        if number >= 2:
            raise error
        return statuses

    tests.behaviours[PATCH] = lose
    confirmation = confirm_solution(PATCH, tests, twins=twins)
    assert confirmation.outcome is ConfirmationOutcome.CONFIRMED
    assert (confirmation.general, confirmation.neighbours) == (None, None)


def test_row_neighbour_renames_its_id() -> None:
    source = ROWS.encode()
    sites = {site.text: site for site in find_whole(ROWS)}
    site = sites['"one-two"']
    change = SiteChange(site, "'one'", ((find_inputs(source, site)[1].spans[0], "4"),))
    test = "t.py::test_rows[one two-7-one-two]"
    place = locate_tests([test], {"t.py": source}, str)[test]
    assert rename_test(test, place, change, source, str) == "t.py::test_rows[one two-4-one]"
