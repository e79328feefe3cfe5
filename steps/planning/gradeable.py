"""Choice of the selected rows that can be graded, and the notices about the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.rows import why_not_gradeable

MAX_REASONS = 3
"""Largest number of reasons in a line."""
_REASON_CHARACTERS = 120
"""Maximum characters of one reason."""


@dataclass(frozen=True)
class GradeableRows:
    """The rows of the run; ``left_out``: instance -> the reason why it cannot be graded."""

    rows: list[dict[str, Any]]
    left_out: dict[str, str]
    notices: list[str]


def choose_gradeable_rows(selected: list[dict[str, Any]], *, skip: bool) -> GradeableRows:
    """Return the gradeable rows. Raises ConfigError if none is gradeable or, without ``skip``, if some are not."""
    left_out = {row["instance_id"]: reason for row in selected if (reason := why_not_gradeable(row))}
    if not left_out:
        return GradeableRows(selected, {}, [])
    line = f"{len(left_out)} of {len(selected)} instances cannot be graded: {describe_kinds(left_out)}"
    if len(left_out) == len(selected):
        raise ConfigError(line, field="dataset")
    if not skip:
        raise ConfigError(f"{line}; leave them out with --skip-not-gradeable", field="dataset")
    gradeable = [row for row in selected if row["instance_id"] not in left_out]
    return GradeableRows(gradeable, left_out, [f"{line}; they are left out"])


def describe_kinds(reasons: dict[str, str]) -> str:
    """Return a line with the most frequent reasons, each with its count and one instance."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for instance, reason in reasons.items():
        by_reason[" ".join(reason.removeprefix(f"{instance}: ").split())].append(instance)
    ordered = sorted(by_reason.items(), key=lambda item: -len(item[1]))
    parts = [f"{len(ids)} ({_name_first(ids)}): {text[:_REASON_CHARACTERS]}" for text, ids in ordered[:MAX_REASONS]]
    if remaining := sum(len(ids) for _, ids in ordered[MAX_REASONS:]):
        parts.append(f"{remaining} for {len(ordered) - MAX_REASONS} other reasons")
    return "; ".join(parts)


def _name_first(ids: Iterable[str]) -> str:
    first, *more = ids
    return f"{first}, ..." if more else first
