"""Texts that echo a key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from swe_argo.steps.models.scrub import LONGEST, PIECE, scrub

_KEYS = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", min_size=12, max_size=80)


@given(_KEYS, st.text(max_size=60), st.text(max_size=60), st.integers(0, 60), st.integers(PIECE, 80))
def test_no_piece_of_a_key_is_left(key: str, before: str, after: str, start: int, length: int) -> None:
    piece = key[start : start + length]
    told = scrub(f"{before}{piece}{after}", SecretStr(key))
    for place in range(len(key) - PIECE + 1):
        assert key[place : place + PIECE] not in told


def test_other_words_stay() -> None:
    text = "The model `gpt-9` does not exist... or you do not have access (see https://example.org/docs)."
    assert scrub(text, SecretStr("sk-proj-abcdefghijklmnop")) == text
    assert scrub(text, None) == text


def test_a_key_with_its_middle_left_out_is_not_told_either() -> None:
    told = scrub("Incorrect API key provided: sk-pr****************wxyz. You can find it.", None)
    assert told == "Incorrect API key provided: *** You can find it."
    assert scrub("Received API Key = sk-...wxyz, Key", None) == "Received API Key = ***, Key"


def test_a_text_is_kept_short() -> None:
    assert len(scrub("x " * 100_000, SecretStr("k" * 20))) <= LONGEST
