from __future__ import annotations

import pytest

from swe_argo.steps.reports.text.formatting import (
    count,
    decimal,
    duration,
    listing,
    money,
    percent,
    size,
    tokens,
    unit_name,
    utc,
)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 s"),
        (0.0304, "30 ms"),
        (0.0996, "0.1 s"),
        (0.44, "0.4 s"),
        (9.96, "10 s"),
        (59.6, "1 m 00 s"),
        (192, "3 m 12 s"),
        (3599.7, "1 h 00 m"),
        (7500, "2 h 05 m"),
    ],
)
def test_duration_is_formatted(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


@pytest.mark.parametrize(
    ("dollars", "expected"),
    [(0, "$0"), (0.0123, "$0.012"), (0.00045678, "$0.00046"), (0.4, "$0.40"), (0.999, "$1.00"), (1234.5, "$1,234.50")],
)
def test_money_is_formatted(dollars: float, expected: str) -> None:
    assert money(dollars) == expected


def test_tokens_are_formatted() -> None:
    assert [tokens(n) for n in (0, 999_999, 1_234_567, 2_500_000_000)] == ["0", "999,999", "1.2 M", "2.5 G"]


def test_percent_is_whole_only_if_exact() -> None:
    assert [percent(p) for p in (0.0, 1.0, 0.624, 0.9999, 0.0001)] == ["0", "100", "62.4", "> 99.9", "< 0.1"]


def test_utc_formats_times_with_zone() -> None:
    assert utc("2026-03-01T14:05:09+00:00") == "2026-03-01 14:05 UTC"
    assert utc("2026-03-01T14:05:09+00:00", seconds=True) == "2026-03-01 14:05:09 UTC"


def test_counts_are_formatted() -> None:
    assert count(1, "log") == "1 log"
    assert count(2, "repository", "repositories") == "2 repositories"
    assert [listing(list("abc"[:n])) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert [size(n) for n in (12, 14_300, 2_100_000)] == ["12 B", "14 kB", "2.1 MB"]


def test_unit_name_shows_later_attempts() -> None:
    assert [unit_name("a__b-1", attempt) for attempt in (1, 2)] == ["a__b-1", "a__b-1 #2"]


def test_decimal_is_formatted() -> None:
    numbers = (0.0, 0.01249, 1.5, -0.2, 12_800.4, -1500.0, 2.5e7, 8e307)
    assert [decimal(number) for number in numbers] == [
        *("0", "0.0125", "1.5", "-0.2", "12,800", "-1,500", "25.0 M", "8e+307"),
    ]
