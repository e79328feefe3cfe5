"""Relations: properties of an expected value that a reader can check without knowing how it is computed.

A patch that fixes nothing can reject values whose parts do not add up, dates that do not exist, or words with letters
that are not those of the input. Wrong values keep these relations.
"""

from __future__ import annotations

import re
import unicodedata
from calendar import monthrange
from decimal import Decimal, InvalidOperation
from functools import lru_cache

DATE = re.compile(r"(?<![\d-])(?:(\d{4})-)?(\d\d)-(\d\d)(?![\d-])")
MOST_LETTERS = 60
"""The number of letters of a text that are compared with the test's input."""


def measure_display(value: object) -> tuple[int, Decimal | None]:
    """Return the length of a display, and the sum of its elements if all are numbers or texts of numbers."""
    if not isinstance(value, list | tuple | set | dict):
        return 0, None
    try:
        parts = [Decimal(str(element)) for element in (value.values() if isinstance(value, dict) else value)]
    except InvalidOperation:
        return len(value), None
    return len(value), sum(parts, Decimal()) if all(part.is_finite() for part in parts) else None


def count_false_dates(text: str) -> int:
    """Return how many texts with the form of a date are not valid dates."""
    # Without a year, 29 February is valid; the calendar has no year 0.
    return sum(
        not (1 <= int(month) <= 12 and 1 <= int(day) <= monthrange(int(year or 2000) or 1, int(month))[1])
        for year, month, day in DATE.findall(text)
    )


def fold_letters(text: str) -> str:
    """Return the letters and digits of a text in lower case, without accents."""
    plain = unicodedata.normalize("NFKD", text[:MOST_LETTERS]).encode("ascii", "ignore").decode()
    return "".join(letter for letter in plain.lower() if letter.isalnum())


@lru_cache(maxsize=65536)
def count_common_letters(first: str, second: str) -> int:
    """Return the length of the longest common subsequence."""
    row = [0] * (len(second) + 1)
    for letter in first:
        before = row
        row = [0]
        for at, other in enumerate(second):
            row.append(before[at] + 1 if letter == other else max(before[at + 1], row[at]))
    return row[-1]
