"""Waiting times between retries of a model request."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_S = 120.0
"""Longest wait within one call; after a longer one the engine tries the unit again."""


_IN_WORDS = re.compile(r"(?:try again|retry)(?: after| in) (?:(\d+)m)?(\d+(?:\.\d+)?) ?(ms|s)", re.IGNORECASE)
"""A wait in an error message: "try again in 1m2.5s", "retry after 300ms"."""


def requested_wait_s(headers: Mapping[str, str], now: datetime | None = None, *, words: str = "") -> float | None:
    """Return the seconds to wait that the endpoint asks for, at most LONGEST_S; None if it names none.

    Sources in order: ``retry-after-ms`` (OpenAI, Azure), Retry-After as a number or a date (RFC 9110), then the error
    message in ``words`` (Gemini names the wait only there, Groq with status 413).
    """
    seconds = retry_after_s(headers, now)
    if seconds is None and (match := _IN_WORDS.search(words)):
        minutes, number, unit = match.groups()
        seconds = float(minutes or 0) * 60 + float(number) * (0.001 if unit == "ms" else 1.0)
    return None if seconds is None else min(seconds, LONGEST_S)


def retry_after_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds in ``retry-after-ms`` or Retry-After (number or date), None if absent."""
    retry_after = headers.get("retry-after")
    seconds = _number(headers.get("retry-after-ms"), 0.001)
    if seconds is None:
        seconds = _number(retry_after, 1.0)
    if seconds is None and retry_after:
        try:
            then = parsedate_to_datetime(retry_after)
        except (ValueError, OverflowError):
            return None
        then = then if then.tzinfo else then.replace(tzinfo=UTC)
        seconds = (then - (now or datetime.now(UTC))).total_seconds()
    return None if seconds is None else max(seconds, 0.0)


def _number(text: str | None, unit: float) -> float | None:
    """Return the number in a text times ``unit``, None if the text is no finite number."""
    try:
        value = float(text or "") * unit
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def wait_s(failed: int, requested_s: float | None, first_s: float) -> float:
    """Return the seconds to wait: the requested wait with a little jitter, else exponential backoff with jitter.

    ``failed`` is the number of failures before the last one, ``first_s`` the longest wait after the first failure.
    """
    if requested_s is not None:
        return requested_s + random.uniform(0, min(1.0, requested_s / 10))
    longest = min(first_s * 2.0**failed, LONGEST_S / 2)
    return random.uniform(longest / 2, longest)
