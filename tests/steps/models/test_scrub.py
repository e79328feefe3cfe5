"""Texts that echo a key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from swe_argo.steps.models.scrub import LONGEST, PIECE, scrub

_KEYS = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", min_size=12, max_size=80)


@given(_KEYS, st.text(max_size=60), st.text(max_size=60), st.integers(0, 60), st.integers(PIECE, 80))
def test_scrub_removes_every_key_piece(key: str, before: str, after: str, start: int, length: int) -> None:
    piece = key[start : start + length]
    text = scrub(f"{before}{piece}{after}", SecretStr(key))
    for place in range(len(key) - PIECE + 1):
        assert key[place : place + PIECE] not in text


def test_scrub_keeps_other_words() -> None:
    text = "The model `gpt-9` does not exist... or you do not have access (see https://example.org/docs)."
    assert scrub(text, SecretStr("sk-proj-abcdefghijklmnop")) == text
    assert scrub(text, None) == text


def test_scrub_removes_masked_keys() -> None:
    text = scrub("Incorrect API key provided: sk-pr****************wxyz. You can find it.", None)
    assert text == "Incorrect API key provided: *** You can find it."
    assert scrub("Received API Key = sk-...wxyz, Key", None) == "Received API Key = ***, Key"


def test_scrub_limits_length() -> None:
    assert len(scrub("x " * 100_000, SecretStr("k" * 20))) <= LONGEST
