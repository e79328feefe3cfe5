from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.reports.text.visible import cut_line, log_tail, make_visible, patch_head


@pytest.mark.parametrize(
    ("text", "shown"),
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
def test_what_cannot_be_seen_is_written_out(text: str, shown: str) -> None:
    assert make_visible(text) == shown


@given(st.text(st.characters(codec=None)))
def test_any_text_becomes_printable_utf8(text: str) -> None:
    shown = make_visible(text)
    shown.encode()
    assert not any((ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 for c in shown)


def test_a_long_line_says_how_much_is_missing() -> None:
    assert cut_line("x" * 10, 10) == "x" * 10
    assert cut_line("x" * 1234, 10) == "x" * 10 + " … 1,224 more characters"


def test_the_head_counts_the_lines_left_out() -> None:
    assert patch_head(b"a\nb\nc\n", 2, 80) == patch_head(b"a\nb\nc", 2, 80)
    assert patch_head(b"a\nb\nc\n", 2, 80).lines == ("a", "b")
    assert patch_head(b"a\nb\nc\n", 2, 80).left_out == 1
    assert patch_head(b"a\nb\nc\n", 3, 80).left_out == 0
    assert patch_head(b"", 3, 80).lines == ()


def test_the_tail_ends_where_the_tests_end() -> None:
    log = b"start\n1 failed\n+ : '>>>>> End Test Output'\n+ git checkout abc\nUpdated 1 path\n"
    shown = log_tail(log, 2, 80)
    assert shown.lines == ("1 failed", "+ : '>>>>> End Test Output'")
    assert shown.left_out == 1


def test_the_tail_of_a_log_without_an_end_is_its_end() -> None:
    shown = log_tail(b"1\n2\n3\n\n", 2, 80)
    assert shown.lines == ("2", "3")
    assert shown.left_out == 1
    assert log_tail(b"\n\n", 2, 80).lines == ()


def test_a_line_of_many_megabytes_is_cut_by_bytes() -> None:
    line = patch_head(b"\xff" * 5_000_000, 1, 80).lines[0]
    assert line.startswith("\\xff\\xff")
    assert line.endswith("4,999,920 more bytes")
    assert len(line) < 120
