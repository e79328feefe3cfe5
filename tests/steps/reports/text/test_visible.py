from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.reports.text.visible import cut_line, log_tail, make_visible, patch_head


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


def test_cut_line_counts_the_rest() -> None:
    assert cut_line("x" * 10, 10) == "x" * 10
    assert cut_line("x" * 1234, 10) == "x" * 10 + " … 1,224 more characters"


def test_patch_head_counts_missing_lines() -> None:
    assert patch_head(b"a\nb\nc\n", 2, 80) == patch_head(b"a\nb\nc", 2, 80)
    assert patch_head(b"a\nb\nc\n", 2, 80).lines == ("a", "b")
    assert patch_head(b"a\nb\nc\n", 2, 80).left_out == 1
    assert patch_head(b"a\nb\nc\n", 3, 80).left_out == 0
    assert patch_head(b"", 3, 80).lines == ()


def test_log_tail_ends_where_tests_end() -> None:
    log = b"start\n1 failed\n+ : '>>>>> End Test Output'\n+ git checkout abc\nUpdated 1 path\n"
    tail = log_tail(log, 2, 80)
    assert tail.lines == ("1 failed", "+ : '>>>>> End Test Output'")
    assert tail.left_out == 1


def test_log_tail_needs_no_end_mark() -> None:
    tail = log_tail(b"1\n2\n3\n\n", 2, 80)
    assert tail.lines == ("2", "3")
    assert tail.left_out == 1
    assert log_tail(b"\n\n", 2, 80).lines == ()


def test_patch_head_cuts_huge_line() -> None:
    line = patch_head(b"\xff" * 5_000_000, 1, 80).lines[0]
    assert line.startswith("\\xff\\xff")
    assert line.endswith("4,999,920 more bytes")
    assert len(line) < 120
