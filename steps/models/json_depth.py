"""Foreign JSON may be deeper than what writes and reads the record of it can go."""

from __future__ import annotations

DEEPEST = 100
"""Levels; pydantic writes some 250."""


def is_deeper(value: object, levels: int = DEEPEST) -> bool:
    """Whether lists and objects lie more than so many levels within each other."""
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(is_deeper(each, levels - 1) for each in inner)
