"""Schedules are read as Argo's own library reads them."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from swe_argo.steps.errors import ConfigError
from swe_argo.workflows.argo.nightly import find_zone, parse_schedule


@pytest.mark.parametrize(
    ("text", "after", "then"),
    [
        ("0 2 * * *", "2026-03-01 02:00", "2026-03-02 02:00"),
        ("*/20 * * * *", "2026-03-01 01:41", "2026-03-01 02:00"),
        ("5-10/5,30 8 * * *", "2026-03-01 08:06", "2026-03-01 08:10"),
        ("30 3 * * mon-FRI", "2026-11-20 04:00", "2026-11-23 03:30"),
        ("0 0 29 2 *", "2026-03-01 00:00", "2028-02-29 00:00"),
        ("0 0 13 * fri", "2026-03-01 00:00", "2026-03-06 00:00"),  # either day is enough
        ("0 12 1 jan/6 *", "2026-03-01 00:00", "2026-07-01 12:00"),
        ("@weekly", "2026-03-02 00:00", "2026-03-08 00:00"),
        # What robfig/cron 3.0.1 gives: a step of two or more limits its field, a star anywhere in it opens it.
        ("0 0 */2 * mon", "2026-03-01 00:00", "2026-03-02 00:00"),
        ("0 0 5 * ?/3", "2026-03-01 00:00", "2026-03-04 00:00"),
        ("0 0 */1 * mon", "2026-03-03 00:00", "2026-03-09 00:00"),
        ("0 0 3,? * sun", "2026-03-02 00:00", "2026-03-08 00:00"),
    ],
)
def test_schedule_computes_next_time(text: str, after: str, then: str) -> None:
    following = parse_schedule(text).after(datetime.fromisoformat(after).replace(tzinfo=UTC))
    assert following == datetime.fromisoformat(then).replace(tzinfo=UTC)


def test_schedule_skips_hour_lost_to_dst() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    following = parse_schedule("30 2 * * *").after(datetime(2026, 3, 28, 12, tzinfo=berlin))
    assert following == datetime(2026, 3, 30, 2, 30, tzinfo=berlin)


def test_schedule_can_have_no_next_time() -> None:
    assert parse_schedule("0 0 31 2 *").after(datetime(2026, 1, 1, tzinfo=UTC)) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 2 * *", "4 fields"),
        ("61 2 * * *", "'61' is not a valid minute"),
        ("0 24 * * *", "'24' is not a valid hour"),
        ("0 2 * 13 *", "'13' is not a valid month"),
        ("0 2 * * 7", "'7' is not a valid day of the week"),
        ("0 2 * * mon-sunday", "'mon-sunday' is not a valid day of the week"),
        ("10-5 2 * * *", "'10-5' is not a valid minute"),
        ("*/0 2 * * *", r"'\*/0' is not a valid minute"),
        ("1,,2 2 * * *", "'' is not a valid minute"),
        ("@Weekly", "1 fields"),
        ("٣ 2 * * *", "'٣' is not a valid minute"),
    ],
)
def test_schedule_names_invalid_part(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_schedule(text)


@pytest.mark.parametrize("name", ["Mars/Phobos", "", "../etc/passwd", "/etc/localtime"])
def test_zone_refuses_unknown_name(name: str) -> None:
    with pytest.raises(ConfigError, match="Europe/Berlin"):
        find_zone(name)
