from __future__ import annotations

import ast
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_argo.steps.grading.twins.sites import Site, SiteChange, apply_changes, find_sites
from tests.steps.grading.twins.sources import REPOSITORIES, list_tests


def find(source: str | bytes, *tests: str) -> list[Site]:
    data = source if isinstance(source, bytes) else dedent(source).encode()
    return find_sites("test_it.py", data, pass_to_pass=tests or list_tests(data))


def texts(source: str | bytes, *, strong: bool = True) -> list[str]:
    return [site.text for site in find(source) if site.strong is strong]


BODIES = {
    "equal": ("assert f(1) == 3", ["3"], []),
    "literal first": ("assert 3 == f(1)", ["3"], []),
    "is": ("assert f(1) is True", ["True"], []),
    "chain": ("assert f(1) == g(2) == 3", ["3"], []),
    "and": ("assert f(1) == 3 and g(2) == 'a'", ["3", "'a'"], []),
    "negative": ("assert f(1) == -3", ["-3"], []),
    "bytes": ("assert f(1) == b'ab'", ["b'ab'"], []),
    "concatenated": ("assert f(1) == ('ab' 'cd')", ["'ab' 'cd'"], []),
    "added strings": ("assert f(1) == 'ab' + 'cd'", ["'ab'", "'cd'"], []),
    "lines": ('assert f(1) == """a\nb\n"""', ['"""a\nb\n"""'], []),
    "nested": ("assert f(1) == [2, (3, x), {'k': 4}]", ["2", "3", "{'k': 4}", "'k'", "4"], []),
    "set": ("assert f(1) == {2, 3}", ["{2, 3}", "2", "3"], []),
    "display of results": ("assert (f(1), g(2)) == (3, 'a')", ["(3, 'a')", "3", "'a'"], []),
    "none": ("assert f(1) is None", [], []),
    "no result": ("assert 1 == 2", [], []),
    "f-string": ("assert f(1) == f'a{x}b'", [], []),
    "f-string beside": ("assert f(1) == [f'a{x}', 'b']", ["'b'"], []),
    "expression": ("assert f(x) == 2*x + 3", [], ["2", "3"]),
    "call": ("assert f(1) == Version('2')", [], ["'2'"]),
    "call in display": ("assert f(1) == [Version('2'), 3]", ["3"], ["'2'"]),
    "approx": ("assert f(1) == approx(2.5)", [], ["2.5"]),
    "not equal": ("assert f(1) != 3", [], ["3"]),
    "not": ("assert not f(1) == 3", [], ["3"]),
    "or": ("assert f(1) == 3 or g(2) == 4", [], ["3", "4"]),
    "in": ("assert 'a' in f(1)", [], ["'a'"]),
    "length": ("assert len(f(1)) >= 3", [], ["3"]),
    "exact length": ("assert len(f(1)) == 3", ["3"], []),
    "match": ("with raises(ValueError, match='oh'):\n    f(1)", [], ["'oh'"]),
    "unittest": ("self.assertEqual(f(1), 3)", ["3"], []),
    "unittest first": ("self.assertEqual(3, f(1))", ["3"], []),
    "unittest keyword": ("self.assertEqual(first=f(1), second=3)", ["3"], []),
    "unittest list": ("self.assertListEqual(f(1), [3])", ["[3]", "3"], []),
    "unittest count": ("self.assertCountEqual(f(1), [3, 4])", ["3", "4"], []),
    "unittest is": ("self.assertIs(f(1), False)", ["False"], []),
    "unittest true": ("self.assertTrue(f(1) == 3)", ["3"], []),
    "unittest false": ("self.assertFalse(f(1) == 3)", [], ["3"]),
    "name": ("expected = 'a'\nassert f(1) == expected", ["'a'"], []),
    "name in message": ("expected = 'a'\nassert f(1) == expected, f'not {expected}'", ["'a'"], []),
    "name read twice": ("expected = 'a'\nassert f(expected) == expected", [], []),
    "name changed": ("expected = [3]\nexpected.append(4)\nassert f(1) == expected", [], []),
    "name of loop": ("for expected in g():\n    assert f(1) == expected", [], []),
    "unpacked": ("a, b = 'a', 'b'\nassert f(a) == b", ["'b'"], []),
    "table": ("for a, b in [(1, 'x'), (2, 'y')]:\n    assert f(a) == b", ["'x'", "'y'"], []),
    "named table": ("rows = [(1, 'x'), (2, 'y')]\nfor a, b in rows:\n    assert f(a) == b", ["'x'", "'y'"], []),
    "dictionary": ("for a, b in {1: 'x', 2: 'y'}.items():\n    assert f(a) == b", ["'x'", "'y'"], []),
    "subtest": (
        "for a, b in [(1, 'x')]:\n    with self.subTest(a=a, b=b):\n        self.assertEqual(f(a), b)",
        ["'x'"],
        [],
    ),
    "nested function": ("def check():\n    assert f(1) == 3\ncheck()", ["3"], []),
    "nested helper": ("def check(a, b):\n    assert f(a) == b\ncheck(1, 3)", ["3"], []),
    "input too": ("assert f(3) == 3", [], []),
    "expected twice": ("assert f(1) == 3\nassert g(2) == 3", ["3"], []),
    "written twice": ("assert f(1) == 'a'\nassert g(2) == \"a\"", [], []),
    "bool and number": ("assert f(1) is True", ["True"], []),
}


@pytest.mark.parametrize(("body", "strong", "weak"), BODIES.values(), ids=BODIES)
def test_site_kinds(body: str, strong: list[str], weak: list[str]) -> None:
    for head in ("def test_it(self):", "async def test_it(self):"):
        lines = "".join(f"    {line}\n" for line in body.split("\n"))
        source = f"{head}\n{lines}".replace('\n    b\n    """', '\nb\n"""')
        assert sorted(texts(source)) == sorted(strong)
        assert sorted(texts(source, strong=False)) == sorted(weak)


FILES = {
    "module": ("EXPECTED = 3\ndef test_it():\n    assert f(1) == EXPECTED\n", []),
    "fixture": ("@fixture\ndef it():\n    return 3\ndef test_it(it):\n    assert f(1) == it\n", []),
    "helper": (
        "def check(a, b):\n    assert f(a) == b\ndef test_it():\n    check(1, 'x')\n    check(2, b='y')\n",
        ["'x'", "'y'"],
    ),
    "helper of helper": (
        "def same(a, b):\n    assert a == b\ndef check(a, b):\n    same(f(a), b)\ndef test_it():\n    check(1, 'x')\n",
        ["'x'"],
    ),
    "helper's own": ("def check(a):\n    assert f(a) == 3\ndef test_it():\n    check(1)\n", []),
    "method": (
        "class Base:\n    def check(self, a, b):\n        self.assertEqual(f(a), b)\n"
        "class TestIt(Base):\n    def test_it(self):\n        self.check(1, 'x')\n",
        ["'x'"],
    ),
    "own equality": (
        "class TestIt:\n    def assertEqual(self, a, b):\n        pass\n"
        "    def test_it(self):\n        self.assertEqual(f(1), 'x')\n",
        [],
    ),
    "parametrize": (
        "@mark.parametrize('a, b', [(1, 'x'), param(2, 'y', id='two')], ids=['p', 'q'])\n"
        "def test_it(a, b):\n    assert f(a) == b\n",
        ["'x'", "'y'"],
    ),
    "parametrize one": ("@mark.parametrize('b', ['x', 'y'])\ndef test_it(b):\n    assert f(1) == b\n", ["'x'", "'y'"]),
    "parametrize names": (
        "@mark.parametrize(['a', 'b'], [[1, 'x']])\ndef test_it(a, b):\n    assert f(a) == b\n",
        ["'x'"],
    ),
    "parametrize class": (
        "@mark.parametrize(('a', 'b'), [(1, 'x')])\n"
        "class TestIt:\n    def test_it(self, a, b):\n        assert f(a) == b\n",
        ["'x'"],
    ),
    "parametrize input": ("@mark.parametrize('b', ['x'])\ndef test_it(b):\n    assert f(b) == b\n", []),
    "parametrize indirect": (
        "@mark.parametrize('b', ['x'], indirect=True)\ndef test_it(b):\n    assert f(1) == b\n",
        [],
    ),
    "parametrize constant": ("R = ['x']\n@mark.parametrize('b', R)\ndef test_it(b):\n    assert f(1) == b\n", []),
    "parametrize loose": ("@mark.parametrize('b', ['x'])\ndef test_it(b):\n    assert b in f(1)\n", []),
    "row holds value": ("@mark.parametrize('a, b', [('x', 'x')])\ndef test_it(a, b):\n    assert f(a) == b\n", []),
    "rows share value": (
        "@mark.parametrize('a, b', [(1, 'x'), (2, 'x')])\ndef test_it(a, b):\n    assert f(a) == b\n",
        ["'x'", "'x'"],
    ),
    "redefined": ("def test_it():\n    assert f(1) == 2\ndef test_it():\n    assert f(1) == 3\n", ["3"]),
    "broken": ("def test_it(:\n", None),
}


@pytest.mark.parametrize(("source", "expected"), FILES.values(), ids=FILES)
def test_site_of_file(source: str, expected: list[str] | None) -> None:
    tests = ["TestIt.test_it"] if "TestIt" in source else ["test_it"]
    sites = find_sites("test_it.py", source.encode(), pass_to_pass=tests)
    assert [site.text for site in sites if site.strong] == (expected or [])


def test_site_of_inherited_method() -> None:
    source = b"class A:\n    def test_it(self):\n        assert f(1) == 3\nclass B(A):\n    pass\n"
    assert [site.text for site in find_sites("t.py", source, pass_to_pass=["B.test_it"])] == ["3"]


def test_site_of_row_knows_its_place() -> None:
    source = (
        "@mark.parametrize('c', [0])\n"
        "@mark.parametrize('a, b', [(1, 'x'), (2, 'y')])\n"
        "def test_it(a, b, c):\n    assert f(a, c) == b\n"
    )
    rows = [site.row for site in find(source)]
    assert [(row.decorator, row.index) for row in rows if row] == [(1, 0), (1, 1)]


def test_new_sites_are_on_added_lines() -> None:
    source = b"def test_it():\n    assert f(1) == 3\n    assert f(2) == 4\n"
    sites = find_sites("t.py", source, fail_to_pass=["test_it"], added_lines={3})
    assert [site.text for site in sites] == ["4"]
    assert not find_sites("t.py", source, added_lines={3})


def test_site_is_new_to_its_test() -> None:
    base = b"def test_it():\n    assert f(1) == 3\n    assert f(2) == 5\n"
    source = b"def test_it():\n    assert f(9) == 3\n    assert f(8) == 4\n"
    sites = find_sites("t.py", source, fail_to_pass=["test_it"], added_lines={2, 3}, base=base)
    assert [(site.text, site.avoid) for site in sites] == [("4", ("1", "2", "3", "5"))]


def test_new_row_site_ignores_older_rows() -> None:
    head = b"@mark.parametrize('a, b', [\n    (1, True),\n"
    tail = b"])\ndef test_it(a, b):\n    assert f(a) is b\n"
    source = head + b"    (2, True),\n" + tail
    sites = find_sites("t.py", source, fail_to_pass=["test_it"], added_lines={3}, base=head + tail)
    assert [site.text for site in sites] == ["True"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252"])
def test_changes_keep_every_other_byte(encoding: str, end: str) -> None:
    cookie = "" if encoding.startswith("utf") else f"# coding: {encoding}\n"
    text = f"{cookie}\fdef test_it():\n\tx = 'é'; assert f(x) == ['ü', 'añb'], 'ß'\n".replace("\n", end)
    source = text.encode(encoding)
    (site,) = [site for site in find(source, "test_it") if site.text == "'añb'"]
    assert apply_changes(source, [SiteChange(site, "'bña'")]) == text.replace("añb", "bña").encode(encoding)


def test_sites_need_a_known_encoding() -> None:
    assert not find_sites("t.py", b"# coding: utf-7\ndef test_it():\n    assert f(1) == 3\n", pass_to_pass=["test_it"])


@pytest.mark.parametrize(
    ("texts", "source", "message"),
    [
        (["[4]", "5"], b"def test_it():\n    assert f(1) == [3]\n", "overlap"),
        (["[4]"], b"def test_it():\n    assert f(1) ==  [3]\n", "another source"),
        (["[4"], b"def test_it():\n    assert f(1) == [3]\n", "does not parse"),
    ],
)
def test_invalid_changes_are_refused(texts: list[str], source: bytes, message: str) -> None:
    sites = find(b"def test_it():\n    assert f(1) == [3]\n")
    with pytest.raises(ValueError, match=message):
        apply_changes(source, [SiteChange(site, text) for site, text in zip(sites, texts, strict=False)])


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_changes_replace_whole_constants(data: st.DataObject) -> None:
    source = data.draw(st.sampled_from(REPOSITORIES["cpython"][:3:2])).read_bytes()
    tests = data.draw(st.lists(st.sampled_from(list_tests(source)), min_size=1, max_size=4, unique=True))
    sites = [site for site in find(source, *tests) if site.kind not in ("list", "tuple", "set", "dict")]
    chosen = data.draw(st.lists(st.sampled_from(sites), unique_by=lambda site: site.spans)) if sites else []
    changed = apply_changes(source, [SiteChange(site, "'mark'") for site in chosen])
    spans = sorted(span for site in chosen for span in site.spans)
    position, parts = 0, []
    for start, end in spans:
        parts.append(source[position:start])
        position = end
    assert changed == b"'mark'".join([*parts, source[position:]])
    constants = [ast.literal_eval(f"({source[start:end].decode()}\n)") for start, end in spans]
    assert [type(value).__name__ for value in constants] == [
        site.kind for _, site in sorted((span, site) for site in chosen for span in site.spans)
    ]


PYTHON = b"""
def test_a(self):
    assert f(1) == 42, "should be 42"
    assert f(2) == 43  # not 44
    assert f(3) == "#fff"
    self.assertEqual(f(4), 77, msg=f"got {x}, not 77")
    assert g(5) == 99  # 99 it is
"""
GO = b"""package a
func TestA(t *testing.T) {
\tif got := f(1); got != 42 {
\t\tt.Errorf("got %d, want 42", got)
\t}
\tif got := f(2); got != 43 { // not 44
\t\tt.Errorf("got %d", got)
\t}
}
"""


def test_message_or_comment_is_no_site() -> None:
    assert [site.text for site in find_sites("test.py", PYTHON, pass_to_pass={"test_a"})] == ["43", '"#fff"']
    assert [site.text for site in find_sites("a_test.go", GO, pass_to_pass={"TestA"})] == ["43"]
