"""Example rollouts of a step: the best, the worst, and a random one."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from swe_argo.steps.contracts.record import key
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.reports.figures.units_table import UNITS_FILE
from swe_argo.steps.reports.page.unit_pages import FOLDER
from swe_argo.steps.reports.parquet_bytes import read_parquet
from swe_argo.steps.store import Store


@dataclass(frozen=True, slots=True)
class PickedRollout:
    """An example rollout."""

    why: str
    instance_id: str
    attempt: int
    standing: str
    reward: float
    stop_reason: str | None
    turns: int | None
    sampled_tokens: int
    page: str
    """Its page in the report of the run."""


def pick_rollouts(store: Store, run: str, seed: str) -> list[PickedRollout]:
    """Return examples from the report of the run; none without a report. The same seed picks the same ones.

    Raises InfraError if the store fails.
    """
    name = key(Summary, run).replace(Summary.file, UNITS_FILE)
    data = store.get_many([name]).get(name)
    try:
        table = read_parquet(data).to_pylist() if data else []
    except ValueError:
        return []
    rows = [row for row in table if row["reward"] is not None]
    if not rows:
        return []
    ranked = sorted(rows, key=lambda row: (-row["reward"], row["turns"] or 0, row["instance_id"], row["attempt"]))
    best, worst = ranked[0], ranked[-1]
    picked = [("Best", best), ("Worst", worst)] if best["reward"] > worst["reward"] else []
    remaining = [row for row in ranked if not any(row is example for _, example in picked)]
    if remaining:
        picked.append(("Random", random.Random(seed).choice(remaining)))
    return [_picked(title, row) for title, row in picked]


def _picked(title: str, row: dict[str, Any]) -> PickedRollout:
    """Return the example for a row of units.parquet. Without a trajectory, model calls stand for turns."""
    return PickedRollout(
        title,
        row["instance_id"],
        row["attempt"],
        row["standing"],
        row["reward"],
        row["stop_reason"],
        row["turns"] if row["turns"] is not None else row["calls"],
        row["completion_tokens"] or 0,
        f"{FOLDER}/{row['instance_id']}.{row['attempt']}.html",
    )
