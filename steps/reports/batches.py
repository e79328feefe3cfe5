"""Batch sizes that limit the files of a run in memory at once: a run has thousands of units."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

RECORDS_AT_ONCE = 128
LOGS_AT_ONCE = 16  # of a few MB each, twice in memory while they are decoded
TRAJECTORIES_AT_ONCE = 16  # likewise

T = TypeVar("T")


def batches(items: list[T], size: int) -> Iterator[list[T]]:
    """Yield the items in order, in lists of at most ``size``."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
