"""Depth limit for JSON from outside, which may be nested deeper than the record can store."""

from __future__ import annotations

DEEPEST = 100
"""Allowed levels of nesting; pydantic can write about 250."""


def is_deeper(value: object, levels: int = DEEPEST) -> bool:
    """Return whether lists and objects are nested more than ``levels`` deep."""
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(is_deeper(item, levels - 1) for item in inner)
