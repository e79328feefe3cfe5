"""Formats of numbers and names for people."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10


def duration(seconds: float) -> str:
    """Return ``30 ms``, ``0.4 s``, ``12 s``, ``3 m 12 s``, ``2 h 05 m``."""
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms" if seconds else "0 s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02d} m"


def money(dollars: float) -> str:
    """Return dollars with cents from a dollar on, below that with two significant digits."""
    if dollars < 0:  # a difference
        return f"-{money(-dollars)}"
    if dollars == 0:
        return "$0"
    if dollars >= 0.995:
        return f"${dollars:,.2f}"
    digits = max(2, 1 - floor(log10(dollars)))
    return f"${dollars:.{digits}f}"


def tokens(count: int) -> str:
    """Return the number with thousands separators below a million, then as ``1.2 M``."""
    for unit, name in ((1e9, "G"), (1e6, "M")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:,}"


def percent(share: float) -> str:
    """Return the share in percent with one decimal; 100 and 0 only if exact."""
    text = f"{100 * share:.1f}"
    if text == "100.0":
        return "100" if share == 1 else "> 99.9"
    return "< 0.1" if text == "0.0" and share > 0 else text.removesuffix(".0") if share in (0, 1) else text


def count(number: int, singular: str, plural: str = "") -> str:
    """Return ``1 unit``, ``2 units``."""
    return f"{number:,} {singular if number == 1 else plural or f'{singular}s'}"


def unit_name(instance_id: str, attempt: int) -> str:
    """Return ``a__b-1``, ``a__b-1 #2``."""
    return f"{instance_id} #{attempt}" if attempt > 1 else instance_id


def listing(words: Sequence[str]) -> str:
    """Return ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def utc(stamp: str, *, seconds: bool = False) -> str:
    """Return ``2026-03-01 14:05 UTC`` for an ISO 8601 timestamp in UTC."""
    return f"{stamp[: 19 if seconds else 16].replace('T', ' ')} UTC"


def size(data_bytes: int) -> str:
    """Return ``812 B``, ``14 kB``, ``2.1 MB``."""
    if data_bytes < 1000:
        return f"{data_bytes} B"
    return f"{data_bytes / 1000:.0f} kB" if data_bytes < 1_000_000 else f"{data_bytes / 1_000_000:.1f} MB"


def decimal(number: float) -> str:
    """Return three significant digits, thousands as in ``tokens``: ``0.0125``, ``1.5``, ``-0.2``, ``12,800``."""
    if 1000 <= abs(number) < 1e12:
        return f"{'-' if number < 0 else ''}{tokens(round(abs(number)))}"
    return f"{number:.3g}"
