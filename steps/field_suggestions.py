"""Suggestions of fields for an unknown name: by its last word, by a flag's name, by similarity."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping

_MOST = 3
_CLOSE = 0.5


def suggest_fields(wrong: str, names: Iterable[str], spellings: Mapping[str, Collection[str]] | None = None) -> str:
    """Return ``; did you mean 'select.k'?`` with the closest first, or nothing. ``spellings``: field -> other names.

    The last word decides, whatever its table: k and select_k's own flag --k are select.k.
    """
    known = list(names)
    word = wrong.rpartition(".")[2].lower().replace("-", "_")
    same = [one for one in known if word in (_last(one), *(spellings or {}).get(one, ()))]
    tables = {one.rpartition(".")[0] for one in known} - {""}
    found = sorted(same, key=lambda one: -_ratio(wrong, one))[:_MOST] or _closest(wrong, [*known, *tables])
    return f"; did you mean {' or '.join(map(repr, found))}?" if found else ""


def _closest(wrong: str, names: list[str]) -> list[str]:
    scores = {one: max(_ratio(wrong, one), _ratio(wrong, _last(one)) if "." not in wrong else 0) for one in names}
    best = max(scores, key=lambda one: scores[one])
    return [best] if scores[best] >= _CLOSE else []


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _ratio(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a, b).ratio()
