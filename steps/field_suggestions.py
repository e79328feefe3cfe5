"""Suggestions of fields for an unknown name: by its last word, by a flag's name, by similarity."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping

_MAX_SUGGESTIONS = 3
_MIN_RATIO = 0.5
"""Minimum similarity of a suggestion: difflib's ratio, from 0 to 1."""


def suggest_fields(wrong: str, names: Iterable[str], spellings: Mapping[str, Collection[str]] | None = None) -> str:
    """Return ``; did you mean 'select.k'?`` with the closest first, or nothing. ``spellings``: field -> other names.

    The last word decides, whatever its table: k and select_k's own flag --k are select.k.
    """
    all_names = list(names)
    word = wrong.rpartition(".")[2].lower().replace("-", "_")
    exact = [field for field in all_names if word in (_last(field), *(spellings or {}).get(field, ()))]
    tables = {field.rpartition(".")[0] for field in all_names} - {""}
    suggestions = sorted(exact, key=lambda field: -_ratio(wrong, field))[:_MAX_SUGGESTIONS] or _closest(
        wrong, [*all_names, *tables]
    )
    return f"; did you mean {' or '.join(map(repr, suggestions))}?" if suggestions else ""


def _closest(wrong: str, names: list[str]) -> list[str]:
    """Return the most similar name, if similar enough. A name without a table is compared with last words, too."""
    scores = {
        field: max(_ratio(wrong, field), _ratio(wrong, _last(field)) if "." not in wrong else 0) for field in names
    }
    best = max(scores, key=lambda field: scores[field])
    return [best] if scores[best] >= _MIN_RATIO else []


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _ratio(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a, b).ratio()
