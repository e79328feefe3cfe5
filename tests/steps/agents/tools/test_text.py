from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from steps.agents.tools.text import beginning, ends, ends_by_lines, readable, shown


@settings(deadline=None)
@given(st.binary())
def test_any_bytes_become_text_that_can_be_sent(data: bytes) -> None:
    for text in (readable(data), shown(data.decode("utf-8", "surrogateescape"))):
        text.encode()
        assert "\0" not in text


@settings(deadline=None)
@given(st.text(), st.none() | st.text(), st.integers(1, 50))
def test_cutting_keeps_the_size_and_says_whether_it_cut(text: str, tail: str | None, size: int) -> None:
    cut = ends(text, tail, size)
    assert cut.cut == (tail is not None or len(text) > size)
    assert len(cut.text) <= max(size, 2) + 60 or not cut.cut
    first = beginning(text, tail, size, "<cut>")
    assert first.text == (text[:size] + "<cut>" if cut.cut else text)


@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab"), max_size=30), st.integers(1, 10))
def test_the_first_and_the_last_lines_stay(lines: list[str], most: int) -> None:
    text = "\n".join(lines)
    cut = ends_by_lines(text, None, most)
    whole = text.splitlines()
    assert cut.cut == (len(whole) > 2 * most)
    if cut.cut:
        assert cut.text.startswith("\n".join(whole[:most]) + "\n-")
        assert cut.text.endswith("-\n" + "\n".join(whole[-most:]))


def test_the_end_of_what_was_fetched_in_two_is_its_end() -> None:
    assert ends("abc", "xyz", 4).text.endswith("yz")
    assert ends_by_lines("a\nb", "y\nz", 1).text.endswith("\nz")
