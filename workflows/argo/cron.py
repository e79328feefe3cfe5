"""Parser of Argo's cron schedules: Argo itself reports a wrong schedule only after it was stored.

The rules are those of ParseStandard of robfig/cron v3, which Argo's controller calls: five fields, names of months and
days, ``?`` for ``*``, descriptors such as @daily, no 7 for Sunday. Python's libraries follow Debian's cron, which
differs in most of this, in the hour that summer time skips, and in ``*/2`` as a day.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from swe_argo.steps.errors import ConfigError


@dataclass(frozen=True)
class _Field:
    unit: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def parse(self, text: str) -> int:
        """Return a number, or the number of a name such as ``jan``. Raises ValueError if it is neither."""
        name = text.lower()
        return self.low + self.names.index(name) if name in self.names else int(text)


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    _Field("day of the week", 0, 6, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_PART = re.compile(r"(?:(\*|\?)|(\w+)(?:-(\w+))?)(?:/(\d+))?", re.ASCII)
"""A part of a field: star, value or range, then an optional step. Groups: star, first, last, step."""
_UNLIMITED = re.compile(r"[*?](/0*1)?")
"""A part that does not limit its field; a step greater than 1 does."""
_MAX_YEARS = 5
"""Search limit of robfig/cron: 29 February may be eight years away, and then it finds no next time."""


@dataclass(frozen=True)
class Schedule:
    """A schedule: the allowed values of minute, hour, day of the month, month, day of the week."""

    allowed: tuple[frozenset[int], ...]
    either_day: bool
    """Whether both day fields are limited, so that one of them is enough (cron's oldest rule)."""

    def after(self, moment: datetime) -> datetime | None:
        """Return the first time after ``moment``, in its zone, or None if there is none within five years."""
        minutes, hours, days, months, weekdays = self.allowed
        day = moment.date()
        for _ in range(366 * _MAX_YEARS):
            matches = [day.day in days, (day.isoweekday() % 7) in weekdays]
            if day.month in months and (any(matches) if self.either_day else all(matches)):
                for hour in sorted(hours):
                    for minute in sorted(minutes):
                        candidate = datetime.combine(day, time(hour, minute), moment.tzinfo)
                        # An hour that summer time skips does not survive the conversion to UTC and back.
                        exists = candidate.astimezone(UTC).astimezone(moment.tzinfo).hour == hour
                        if exists and candidate > moment:
                            return candidate
            day += timedelta(days=1)
        return None


def parse_schedule(text: str) -> Schedule:
    """Parse a schedule. Raises ConfigError, which names the wrong part, if Argo would not accept it."""
    fields = _DESCRIPTORS.get(text, text).split()
    if len(fields) != len(_FIELDS):
        raise ConfigError(
            f"{text!r} is not a cron schedule: it has {len(fields)} fields instead of five (minute, hour, day, month, "
            "weekday), as in '0 2 * * *' for every night at two",
            field="--schedule",
        )
    allowed = tuple(_parse_field(text, field_text, rule) for field_text, rule in zip(fields, _FIELDS, strict=True))
    limits = [not any(_UNLIMITED.fullmatch(part) for part in field_text.split(",")) for field_text in fields]
    return Schedule(allowed, either_day=limits[2] and limits[4])


def find_zone(name: str) -> ZoneInfo:
    """Return a time zone by its IANA name. Raises ConfigError if there is none of that name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"{name!r} is not a time zone: give one like Europe/Berlin, America/New_York or Etc/UTC", field="--timezone"
        ) from None


def _parse_field(text: str, field_text: str, rule: _Field) -> frozenset[int]:
    """Return the values that one field of the schedule allows, e.g. {0, 20, 40} for ``*/20`` in the minutes."""
    numbers: set[int] = set()
    for part in field_text.split(","):
        match = _PART.fullmatch(part)
        error = ConfigError(
            f"{text!r}: {part!r} is not a valid {rule.unit} ({rule.low} to {rule.high})", field="--schedule"
        )
        if not match:
            raise error
        star, first, last, step = match.groups()
        try:
            begin = rule.low if star else rule.parse(first)
            # 5/15 means from 5 to the end of the range, as in robfig/cron.
            end = rule.high if star or (step and not last) else rule.parse(last or first)
        except ValueError:
            raise error from None
        if not rule.low <= begin <= end <= rule.high or step == "0":
            raise error
        numbers |= set(range(begin, end + 1, int(step or 1)))
    return frozenset(numbers)
