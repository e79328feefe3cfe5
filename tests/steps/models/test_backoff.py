"""How long is waited before a request is made again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.models.backoff import LONGEST_S, requested_wait_s, wait_s

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "Fri, 01 May 2026 12:00:20 GMT"}, 20.0),
        ({"retry-after": "Fri, 01 May 2026 14:00:20 +0200"}, 20.0),
        ({"retry-after": "Fri, 01 May 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "86400"}, LONGEST_S),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Fri, 01 May 99999999999 12:00:20 GMT"}, None),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
    ],
)
def test_wait_reads_both_header_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert requested_wait_s(headers, NOW) == seconds


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Please try again in 59.977s. Visit https://example.org", 59.977),
        ("Please try again in 1m12.5s", 72.5),
        ("Please try again in 240ms.", 0.24),
        ("Please retry after 7 seconds.", 7.0),
        ("You exceeded your current quota. Please retry in 37.1s.", 37.1),
        ("try again in 9999s", LONGEST_S),
        ("please try again later", None),
    ],
)
def test_wait_is_read_from_error_text(words: str, seconds: float | None) -> None:
    assert requested_wait_s({}, NOW, words=words) == (seconds and pytest.approx(seconds))
    assert requested_wait_s({"retry-after": "3"}, NOW, words=words) == 3.0


@given(st.text(max_size=40))
def test_wait_accepts_any_header_text(text: str) -> None:
    requested_s = requested_wait_s({"retry-after": text}, NOW)
    assert requested_s is None or 0 <= requested_s <= LONGEST_S


@given(st.integers(0, 50))
def test_wait_doubles_up_to_a_minute(failed: int) -> None:
    longest = min(2.0**failed, 60.0)
    assert longest / 2 <= wait_s(failed, None, 1.0) <= longest


@given(st.floats(0, 120))
def test_wait_hardly_exceeds_requested(requested_s: float) -> None:
    assert requested_s <= wait_s(3, requested_s, 1.0) <= requested_s + 1.0
