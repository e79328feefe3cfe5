from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.reports import formatting
from swe_argo.steps.reports.formatting import cut_line, log_tail, make_visible, patch_head
from swe_argo.steps.reports.page.templating import keep_units, page_templates
from swe_argo.steps.reports.page.unit_page import patch_files, render_issue

FORMATS: dict[str, list[tuple[Any, str]]] = {
    "duration": [
        *((0, "0 s"), (0.0304, "30 ms"), (0.0996, "0.1 s"), (0.44, "0.4 s"), (9.96, "10 s"), (59.6, "1 m 00 s")),
        *((192, "3 m 12 s"), (3599.7, "1 h 00 m"), (7500, "2 h 05 m")),
    ],
    "money": [
        *((0, "$0"), (0.0123, "$0.012"), (0.00045678, "$0.00046"), (0.4, "$0.40"), (0.999, "$1.00")),
        (1234.5, "$1,234.50"),
    ],
    "tokens": [(0, "0"), (999_999, "999,999"), (1_234_567, "1.2 M"), (2_500_000_000, "2.5 G")],
    "percent": [(0.0, "0"), (1.0, "100"), (0.624, "62.4"), (0.9999, "> 99.9"), (0.0001, "< 0.1")],
    "utc": [("2026-03-01T14:05:09+00:00", "2026-03-01 14:05 UTC")],
    "size": [(12, "12 B"), (14_300, "14 kB"), (2_100_000, "2.1 MB")],
    "listing": [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")],
    "decimal": [
        *((0.0, "0"), (0.01249, "0.0125"), (1.5, "1.5"), (-0.2, "-0.2"), (12_800.4, "12,800"), (-1500.0, "-1,500")),
        *((2.5e7, "25.0 M"), (8e307, "8e+307")),
    ],
}


@pytest.mark.parametrize("name", FORMATS)
def test_figures_are_formatted(name: str) -> None:
    assert [getattr(formatting, name)(value) for value, _ in FORMATS[name]] == [text for _, text in FORMATS[name]]


def test_names_and_counts_are_formatted() -> None:
    assert formatting.utc("2026-03-01T14:05:09+00:00", seconds=True) == "2026-03-01 14:05:09 UTC"
    assert formatting.count(1, "log") == "1 log"
    assert formatting.count(2, "repository", "repositories") == "2 repositories"
    assert [formatting.unit_name("a__b-1", attempt) for attempt in (1, 2)] == ["a__b-1", "a__b-1 #2"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("45.0 % resolved", "45.0~% resolved"),
        ("3 m 12 s a unit", "3~m~12~s a unit"),
        ("2 h 05 m, 1.2 M tokens", "2~h~05~m, 1.2~M tokens"),
        ("12,345 tokens, +1.5 points", "12,345~tokens, +1.5~points"),
        ("in 3 slots and 4 months", "in 3 slots and 4 months"),
    ],
)
def test_keep_units_joins_figures(text: str, expected: str) -> None:
    assert keep_units(text).replace("\u00a0", "~") == expected
    template = page_templates().from_string('{{ 192|duration }}; {{ 1200000|tokens }}; {{ 3|count("issue") }}')
    assert template.render().replace("\u00a0", "~") == "3~m~12~s; 1.2~M; 3~issues"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x00\x1b[31m\x7f\r", "␀␛[31m␡␍"),
        ("a\tb\nc", "a\tb\nc"),
        ("\x9b31m", "\\x9b31m"),
        ("abc\u202egnp", "abc\\u202egnp"),
        ("a\u200bb\ufeff", "a\\u200bb\\ufeff"),
        ("\udcff", "\\xff"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("déjà 漢字 🎉", "déjà 漢字 🎉"),
    ],
)
def test_invisible_text_is_escaped(text: str, expected: str) -> None:
    assert make_visible(text) == expected


@given(st.text(st.characters(codec=None)))
def test_visible_text_is_printable(text: str) -> None:
    visible = make_visible(text)
    visible.encode()
    assert not any((ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 for c in visible)


@pytest.mark.parametrize(
    ("patch", "most", "lines", "left_out"),
    [(b"a\nb\nc\n", 2, ("a", "b"), 1), (b"a\nb\nc", 2, ("a", "b"), 1), (b"a\nb\n", 2, ("a", "b"), 0), (b"", 3, (), 0)],
)
def test_patch_head_counts_missing_lines(patch: bytes, most: int, lines: tuple[str, ...], left_out: int) -> None:
    head = patch_head(patch, most, 80)
    assert (head.lines, head.left_out) == (lines, left_out)


def test_long_lines_are_cut() -> None:
    line = patch_head(b"\xff" * 5_000_000, 1, 80).lines[0]
    assert line.startswith("\\xff\\xff")
    assert line.endswith("4,999,920 more bytes")
    assert len(line) < 120
    assert (cut_line("x" * 10, 10), cut_line("x" * 1234, 10)) == ("x" * 10, "x" * 10 + " … 1,224 more characters")


@pytest.mark.parametrize(
    ("log", "lines", "left_out"),
    [
        (
            b"start\n1 failed\n+ : '>>>>> End Test Output'\n+ git checkout abc\nUpdated 1 path\n",
            ("1 failed", "+ : '>>>>> End Test Output'"),
            1,
        ),
        (b"1\n2\n3\n\n", ("2", "3"), 1),
        (b"\n\n", (), 0),
    ],
    ids=["end mark", "no end mark", "empty"],
)
def test_log_tail_ends_where_tests_end(log: bytes, lines: tuple[str, ...], left_out: int) -> None:
    tail = log_tail(log, 2, 80)
    assert (tail.lines, tail.left_out) == (lines, left_out)


GIT = b"""diff --git a/a.py b/a.py
index 1..2 100644
--- a/a.py
+++ b/a.py
@@ -1,4 +1,4 @@ def f():
 one
--- a/looks like a head
+++ b/looks like a head
 two
 three
@@ -10 +10,2 @@
-x
+y
+z
\\ No newline at end of file
diff --git a/old name.py b/new name.py
similarity index 100%
rename from old name.py
rename to new name.py
diff --git a/gone.py b/gone.py
deleted file mode 100644
--- a/gone.py
+++ /dev/null
@@ -1,2 +0,0 @@
-a
-b
"""
PLAIN = b"--- a/x.py\t2026\n+++ b/x.py\t2026\n@@ -1 +1 @@\n-a\n+b\n--- /dev/null\n+++ b/y.py\n@@ -0,0 +1 @@\n+c\n"


def test_patch_files_counts_lines() -> None:
    assert patch_files(GIT) == [("a.py", 3, 2), ("new name.py", 0, 0), ("gone.py", 0, 2)]
    assert patch_files(PLAIN) == [("x.py", 1, 1), ("y.py", 1, 0)]
    assert patch_files(b"") == patch_files(b"hello\n+world\n") == []


def test_patch_files_escapes_file_names() -> None:
    [file] = patch_files(b"diff --git a/\x1b[31m b/\x1b[31m" + b"x" * 1000)
    assert file[0].startswith("␛[31m")
    assert file[0].endswith("more characters")


def test_issue_is_rendered() -> None:
    html = render_issue(
        "## A `b` ##\ntext **bold**\nmore\n\n* one\n2. two\n> said\n\n    code\n\n```py\n# x < 1\n```\n"
    )
    assert html.split("\n") == [
        *("<h3>A <code>b</code></h3>", "<p>text <strong>bold</strong>", "more</p>"),
        *("<ul>", "<li>one</li>", "</ul>", '<ol start="2">', "<li>two</li>", "</ol>"),
        *("<blockquote>", "<p>said</p>", "</blockquote>", "<pre><code>code", "</code></pre>"),
        *('<pre><code class="language-py"># x &lt; 1', "</code></pre>", ""),
    ]
    assert render_issue("") == render_issue("\n \n") == ""


HOSTILE_ISSUES = [
    "<!-- a comment -->\n<details>\n<img src=x onerror=alert(1)>\n#no heading",
    "[a link](javascript:alert(1)) [another](https://example.com) <https://example.com> ![image](https://example.com/x.png)",
    "[ref]: https://example.com\n[ref] ![ref]",
    "&#x202e;&lt;script&gt; \x1b[2J\u202e",
    '```&#x202e;"onmouseover=alert(1)\nx\n```',
]


@pytest.mark.parametrize("text", HOSTILE_ISSUES)
def test_issue_shows_all_text_and_loads_nothing(text: str) -> None:
    html = str(render_issue(text))
    assert not re.search(r"<(?!/?(?:p|pre|code)\b)|\u202e|\x1b", re.sub(r' class="[^"<>]*"', "", html))
    if "```" not in text:
        visible = text.replace("\x1b", "␛").replace("\u202e", "\\u202e")
        assert unescape(re.sub("<[^>]+>", "", html)).strip() == visible
