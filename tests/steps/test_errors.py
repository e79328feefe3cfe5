from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.errors import one_line


@given(st.text(), st.integers(80, 200))
def test_error_line_is_bounded(text: str, most: int) -> None:
    line = one_line(text, most, "the log")
    assert len(line) <= most
    assert "\n" not in line


@given(st.lists(st.text("abc", min_size=1, max_size=20), min_size=1, max_size=60), st.integers(80, 200))
def test_error_line_is_cut_between_words(words: list[str], most: int) -> None:
    head, mark, _ = one_line(" ".join(words), most).partition(" ...")
    words_left = head.split(" ")
    assert words_left == words[: len(words_left)]
    assert bool(mark) == (len(words_left) < len(words))


def test_error_line_cuts_unbroken_text() -> None:
    assert one_line("x" * 300, 50, "the log") == "x" * 36 + " ... (the log)"
