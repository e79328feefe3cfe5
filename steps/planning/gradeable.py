"""Choice of the selected rows that can be graded, and the notices about the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.rows import why_not_gradeable

KINDS = 3
"""The most reasons in a line."""
_REASON = 120


@dataclass(frozen=True)
class GradeableRows:
    """The rows of the run; ``left_out``: instance -> the reason why it cannot be graded."""

    rows: list[dict[str, Any]]
    left_out: dict[str, str]
    notices: list[str]


def choose_gradeable_rows(selected: list[dict[str, Any]], *, skip: bool) -> GradeableRows:
    """Return the gradeable rows; ``skip`` drops the others. Raises ConfigError for others, or if no row is left."""
    left_out = {row["instance_id"]: reason for row in selected if (reason := why_not_gradeable(row))}
    if not left_out:
        return GradeableRows(selected, {}, [])
    line = f"{len(left_out)} of {len(selected)} instances cannot be graded: {describe_kinds(left_out)}"
    if len(left_out) == len(selected):
        raise ConfigError(line, field="dataset")
    if not skip:
        raise ConfigError(f"{line}; --skip-not-gradeable leaves them out", field="dataset")
    kept = [row for row in selected if row["instance_id"] not in left_out]
    return GradeableRows(kept, left_out, [f"{line}; they are left out"])


def describe_kinds(reasons: dict[str, str]) -> str:
    """Return the most frequent reasons with their counts and an instance each, in a line."""
    by_kind: dict[str, list[str]] = defaultdict(list)
    for instance, reason in reasons.items():
        by_kind[" ".join(reason.removeprefix(f"{instance}: ").split())].append(instance)
    ordered = sorted(by_kind.items(), key=lambda item: -len(item[1]))
    parts = [f"{len(ids)} ({_name_first(ids)}): {kind[:_REASON]}" for kind, ids in ordered[:KINDS]]
    if others := sum(len(ids) for _, ids in ordered[KINDS:]):
        parts.append(f"{others} for {len(ordered) - KINDS} other reasons")
    return "; ".join(parts)


def _name_first(ids: Iterable[str]) -> str:
    first, *others = ids
    return f"{first}, ..." if others else first
