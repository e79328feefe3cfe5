"""Progress lines of a program on its standard output, which its caller shows."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator
from typing import TypeVar

T = TypeVar("T")

INTERVAL_S = 1.0
"""Seconds between two lines of one count."""


def print_progress(text: str) -> None:
    """Print a progress line: the phase, and after a colon how far it has come."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def count_progress(items: Collection[T], phase: str) -> Iterator[T]:
    """Yield the items, and print their count at intervals."""
    last_line_at = float("-inf")
    for number, item in enumerate(items):
        if (now := time.monotonic()) - last_line_at >= INTERVAL_S:
            print_progress(f"{phase}: {number:,} of {len(items):,}")
            last_line_at = now
        yield item
