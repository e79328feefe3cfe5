from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.errors import one_line


@given(st.text(), st.integers(80, 200))
def test_a_line_is_one_line_of_at_most_so_many_characters(text: str, most: int) -> None:
    line = one_line(text, most, "the log")
    assert len(line) <= most
    assert "\n" not in line


@given(st.lists(st.text("abc", min_size=1, max_size=20), min_size=1, max_size=60), st.integers(80, 200))
def test_words_are_kept_whole(words: list[str], most: int) -> None:
    head, mark, _ = one_line(" ".join(words), most).partition(" ...")
    kept = head.split(" ")
    assert kept == words[: len(kept)]
    assert bool(mark) == (len(kept) < len(words))


def test_what_has_no_words_is_cut_at_its_length() -> None:
    assert one_line("x" * 300, 50, "the log") == "x" * 36 + " ... (the log)"
